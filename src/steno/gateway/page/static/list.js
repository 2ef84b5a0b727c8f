// The list of sessions: rows as they come, and which are unread. What was seen is remembered here,
// by the last fact of each session.

import { one } from "./log.js";

const SEEN = "steno:seen";
const SEEN_MAX = 2_000;

export class List {
  constructor() {
    this.element = document.getElementById("sessions");
    this.current = document.body.dataset.session;
    if (!this.element) return;
    try {
      this.seen = JSON.parse(localStorage.getItem(SEEN)) ?? { since: Date.now(), heads: {} };
    } catch {
      this.seen = { since: Date.now(), heads: {} };
    }
    for (const row of this.element.children) this.mark(row);
    this.remember();
  }

  put({ id, html }) {
    const fresh = one(html);
    const old = this.row(id);
    if (!old && "found" in this.element.dataset) return;
    old?.remove();
    const at = Number(fresh.dataset.at);
    const next = [...this.element.children].find((row) => Number(row.dataset.at) <= at);
    this.element.insertBefore(fresh, next ?? null);
    document.getElementById("no-sessions")?.remove();
    if (id === this.current) this.stands(fresh);
    this.mark(fresh);
    this.remember();
  }

  stands(row) {
    row.querySelector("a").setAttribute("aria-current", "page");
    const title = row.querySelector(".title").textContent;
    const head = document.getElementById("title");
    if (head && head.textContent !== title) {
      head.textContent = title;
      document.title = `${title} · steno`;
    }
    const model = document.getElementById("model");
    if (model) model.textContent = row.dataset.model;
  }

  drop(id) {
    this.row(id)?.remove();
    if (id === this.current) location.assign("/");
  }

  row(id) {
    return this.element.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  mark(row) {
    const { id, head, at } = row.dataset;
    const seen = this.seen.heads[id];
    if (id === this.current) this.seen.heads[id] = Number(head);
    const unread =
      id !== this.current && (seen === undefined ? Number(at) > this.seen.since : Number(head) > seen);
    row.classList.toggle("unread", unread);
    row.querySelector(".new").hidden = !unread;
    if (!unread) this.seen.heads[id] = Number(head);
  }

  remember() {
    const heads = Object.entries(this.seen.heads).slice(-SEEN_MAX);
    try {
      localStorage.setItem(SEEN, JSON.stringify({ ...this.seen, heads: Object.fromEntries(heads) }));
    } catch {
      // Then everything is read at the next visit.
    }
  }
}
