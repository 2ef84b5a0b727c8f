// The page: one stream, put into what the server rendered.

import { Composer } from "./composer.js";
import { List } from "./list.js";
import { Live } from "./live.js";
import { Log } from "./log.js";

const body = document.body;
const banner = document.getElementById("banner");
const announcer = document.getElementById("announce");
let toast = 0;

function say(text) {
  if (banner && banner.dataset.kind !== "trouble" && banner.textContent !== text) {
    banner.textContent = text;
  }
}

function complain(text) {
  if (!banner) return;
  banner.dataset.kind = "trouble";
  banner.textContent = text;
  clearTimeout(toast);
  toast = setTimeout(() => {
    delete banner.dataset.kind;
    banner.textContent = "";
  }, 8_000);
}

function announce(text) {
  if (announcer && text) announcer.textContent = text;
}

// --- logging in

const login = document.getElementById("login");

function logIn() {
  if (!login || location.hash.length < 2) return;
  login.elements.code.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  login.requestSubmit();
}

addEventListener("hashchange", logIn);
logIn();

// --- what comes

let loading = null;

async function fetched() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Something cannot be joined on to what is here: take the page as it stands.
function resync() {
  loading ??= fetched()
    .then((fresh) => {
      for (const id of ["log", "queue", "controls"]) {
        const [here, there] = [document.getElementById(id), fresh.getElementById(id)];
        if (here && there) here.replaceChildren(...there.childNodes);
      }
      live.restart(fresh.body.dataset.after);
      log.follow();
    })
    .catch(() => {})
    .finally(() => (loading = null));
}

// Rows that are new or gone; what a person is typing into the others stays.
function syncShelf() {
  loading ??= fetched()
    .then((fresh) => {
      const [here, there] = [document.getElementById("shelf"), fresh.getElementById("shelf")];
      if (body.dataset.shelf !== "approvals") {
        here.replaceChildren(...there.childNodes);
        return;
      }
      const wanted = new Map([...there.querySelectorAll("[data-key]")].map((row) => [row.dataset.key, row]));
      for (const row of here.querySelectorAll("[data-key]")) {
        if (!wanted.delete(row.dataset.key)) row.remove();
      }
      here.prepend(...wanted.values());
      here.querySelector(".empty").hidden = there.querySelector(".empty").hidden;
    })
    .catch(() => {})
    .finally(() => (loading = null));
}

const log = new Log(announce, resync);
const list = new List();
const composer = new Composer(complain);

const handlers = {
  session: (data) => list.put(data),
  deleted: ({ id }) => list.drop(id),
  block: (data) => log.block(data),
  text: (data) => log.text(data),
  queue: ({ html }) => {
    document.getElementById("queue").innerHTML = html;
    log.follow();
  },
  controls: ({ html, runs }) => {
    document.getElementById("controls").innerHTML = html;
    const steer = document.getElementById("steer");
    if (steer) steer.hidden = !runs;
    const send = document.getElementById("send");
    if (send) send.textContent = runs ? "Queue" : "Send";
  },
  inbox: ({ count }) => {
    const asked = document.getElementById("asked");
    asked.textContent = count;
    asked.hidden = !count;
    if (body.dataset.shelf === "approvals") syncShelf();
  },
  changed: ({ what }) => {
    if (what === "deliveries" && body.dataset.shelf === "deliveries") syncShelf();
    else if (what === "restored") location.reload();
    else if ((what === "earlier" || what === "redacted") && log.element) resync();
  },
  gone: () => location.assign("/"),
};

const live = body.dataset.after === undefined ? null : new Live((name, data) => handlers[name](data), say);

// --- what a person does

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-act]")) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  if (event.submitter?.name) fields.set(event.submitter.name, event.submitter.value);
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  try {
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json", "X-Steno-Page": "1" },
      body: fields,
    });
    const said = await answer.json().catch(() => ({}));
    if (answer.status === 401) location.assign("/login");
    else if (!answer.ok) complain(said.detail || "That did not work. Nothing was changed.");
    else if (fields.get("from") === "inbox") form.closest("[data-key]").remove();
    else if (said.to !== location.pathname) location.assign(said.to);
    form.closest("details.menu")?.removeAttribute("open");
  } catch {
    complain("The server cannot be reached. Nothing was changed; try again.");
  }
  for (const button of buttons) button.disabled = false;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  const earlier = event.target.closest("#earlier");
  if (earlier && log.element && body.dataset.session) {
    event.preventDefault();
    const before = new URL(earlier.href).searchParams.get("before");
    const answer = await fetch(`/s/${body.dataset.session}/earlier?before=${before}`);
    if (answer.ok) {
      const { html, link } = await answer.json();
      log.prepend(html, link);
    }
  }
  const menu = document.querySelector("details.menu[open]");
  if (menu && !menu.contains(event.target)) menu.open = false;
});

async function copy(button) {
  const from = button.dataset.copy;
  const text =
    from === "code"
      ? button.closest(".code").querySelector("code").textContent
      : await (await fetch(from)).text();
  try {
    await navigator.clipboard.writeText(text);
    const word = button.textContent;
    button.textContent = "Copied";
    announce("Copied");
    setTimeout(() => (button.textContent = word), 1_500);
  } catch {
    complain("The browser does not let this page copy. Select the text instead.");
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    document.querySelector("details.menu[open]")?.removeAttribute("open");
    return;
  }
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = { "/": "search", c: "say", n: "new" }[event.key];
  if (!to) return;
  event.preventDefault();
  const element = document.getElementById(to);
  if (to === "new") element.click();
  else element?.focus();
});

const theme = document.getElementById("theme");
if (theme) {
  const next = { "": "light", light: "dark", dark: "" };
  const words = { "": "as the system", light: "light", dark: "dark" };
  const told = () => {
    const now = document.documentElement.dataset.theme ?? "";
    theme.setAttribute("aria-label", `Colours: ${words[now]}`);
    theme.title = `Colours: ${words[now]}`;
  };
  theme.addEventListener("click", () => {
    const chosen = next[document.documentElement.dataset.theme ?? ""];
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("steno:theme", chosen);
    told();
  });
  told();
}
