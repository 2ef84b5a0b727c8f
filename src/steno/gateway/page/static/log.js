// The transcript: blocks by their key, text behind what is there of its stream.

const NEAR_PX = 120;

export function one(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

export class Log {
  constructor(announce, resync) {
    this.element = document.getElementById("log");
    this.scroller = document.getElementById("scroll");
    this.announce = announce;
    this.resync = resync;
    if (!this.element) return;
    this.stick = true;
    this.scroller.addEventListener("scroll", () => (this.stick = this.isAtEnd()), { passive: true });
    new ResizeObserver(() => this.follow()).observe(this.scroller);
    document.addEventListener("click", (event) => {
      const details = event.target.closest("summary")?.parentElement;
      if (details?.dataset.fold) details.dataset.touched = "yes";
    });
    if (location.hash.length < 2) this.toEnd();
  }

  isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.stick = true;
  }

  follow() {
    if (this.stick) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  block({ key, html, before }) {
    if (!this.element) return;
    const old = document.getElementById(key);
    if (!html) {
      old?.remove();
      return;
    }
    document.getElementById("empty")?.remove();
    const fresh = one(html);
    const next = before ? document.getElementById(before) : null;
    if (old) {
      keep(old, fresh);
      old.replaceWith(fresh);
    }
    if (!old || (next && fresh.nextElementSibling !== next)) this.element.insertBefore(fresh, next);
    this.tell(fresh);
    this.follow();
  }

  tell(block) {
    if (block.classList.contains("is-asked")) {
      this.announce(`Waits for your decision: ${block.querySelector("summary")?.textContent ?? ""}`);
    } else if (block.classList.contains("answer") && !block.querySelector("[data-stream]")) {
      this.announce((block.querySelector(".prose")?.textContent ?? "").slice(0, 600));
    }
  }

  text({ stream, offset, end, text }) {
    const at = document.querySelector(`[data-stream="${stream}"]`);
    const known = Number(at?.dataset.end ?? -1);
    if (known >= end) return;
    if (known !== offset) {
      this.resync();
      return;
    }
    if (at.lastChild?.nodeType === Node.TEXT_NODE) at.lastChild.appendData(text);
    else at.append(text);
    at.dataset.end = end;
    const folded = at.closest("details.thought");
    if (folded) folded.hidden = false;
    if (at.tagName === "PRE") at.scrollTop = at.scrollHeight;
    this.follow();
  }

  // Earlier messages above; what is read stays where it is.
  prepend(html, link) {
    const before = this.scroller.scrollHeight - this.scroller.scrollTop;
    const holder = document.createElement("template");
    holder.innerHTML = html;
    for (const block of [...holder.content.children].reverse()) {
      if (!block.id || !document.getElementById(block.id)) this.element.prepend(block);
    }
    const place = document.getElementById("earlier").parentElement;
    if (link) place.replaceWith(one(link));
    else place.remove();
    this.scroller.scrollTop = this.scroller.scrollHeight - before;
  }
}

// What a person did with a block, and text that is further than the server's copy, stay.
function keep(old, fresh) {
  for (const details of old.querySelectorAll("details[data-touched]")) {
    const same = fresh.querySelector(`details[data-fold="${CSS.escape(details.dataset.fold)}"]`);
    if (same) {
      same.open = details.open;
      same.dataset.touched = "yes";
    }
  }
  for (const stream of old.querySelectorAll("[data-stream]")) {
    const same = fresh.querySelector(`[data-stream="${stream.dataset.stream}"]`);
    if (same && Number(stream.dataset.end) > Number(same.dataset.end)) same.replaceWith(stream);
  }
  const typed = old.querySelector("input[name=reason]");
  const field = fresh.querySelector("input[name=reason]");
  if (typed && field) {
    field.value = typed.value;
    if (document.activeElement === typed) requestAnimationFrame(() => field.focus());
  }
}
