// Runs before the first paint: colours as chosen, and a sign that scripts run.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("steno:theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be off; the system's colours are fine.
}
