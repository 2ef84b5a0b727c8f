// The stream of the page. It is closed while nobody looks and goes on at the last id that was
// heard, so that a pause, a restart of the server or a sleeping phone costs nothing.
//
// A browser opens six connections to a host, over all tabs. So at most SLOTS tabs hold a stream;
// any further one asks every moment instead, over the same events.

const SLOTS = 4;
const SILENT_MS = 40_000; // the server pings every 15 s
const POLL_MS = 1_500;
const SAY_AFTER_MS = 1_500; // a shorter pause is not worth a word
const NAMES = [
  "hello", "session", "deleted", "block", "text", "queue", "controls", "inbox", "changed", "gone",
  "ping", "bye", "still",
];

export class Live {
  constructor(handle, say) {
    this.handle = handle;
    this.say = say;
    this.after = document.body.dataset.after;
    this.session = document.body.dataset.session;
    this.source = null;
    this.release = null;
    this.failures = 0;
    this.timer = 0;
    this.silent = 0;
    this.saying = 0;
    this.wanted = false;
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("pagehide", () => this.leave());
    addEventListener("pageshow", () => this.look());
    addEventListener("online", () => this.soon(0));
    this.look();
  }

  look() {
    if (document.visibilityState === "visible") {
      if (!this.wanted) {
        this.wanted = true;
        this.open();
      }
    } else this.leave();
  }

  leave() {
    this.wanted = false;
    this.close();
    this.release?.();
    this.release = null;
    clearTimeout(this.saying);
    this.saying = 0;
  }

  restart(after) {
    this.after = after;
    if (this.wanted) this.open();
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    clearTimeout(this.silent);
  }

  async open() {
    this.close();
    this.release ??= await takeSlot();
    if (!this.wanted || this.source) return;
    const query = new URLSearchParams({ after: this.after });
    if (this.session) query.set("session", this.session);
    if (!this.release) query.set("poll", "true");
    const source = new EventSource(`/page/events?${query}`);
    this.source = source;
    this.listen();
    for (const name of NAMES) source.addEventListener(name, (event) => this.hear(source, name, event));
    source.onerror = () => source === this.source && this.lost();
  }

  hear(source, name, event) {
    if (source !== this.source) return;
    this.listen();
    if (name === "hello") this.joined();
    else if (name === "bye") return this.lost();
    else if (name === "still") {
      this.close();
      return this.soon(POLL_MS);
    } else if (name !== "ping") this.handle(name, JSON.parse(event.data));
    if (event.lastEventId) this.after = event.lastEventId;
  }

  listen() {
    clearTimeout(this.silent);
    this.silent = setTimeout(() => this.lost(), SILENT_MS);
  }

  joined() {
    this.failures = 0;
    clearTimeout(this.saying);
    this.saying = 0;
    this.say("");
  }

  lost() {
    this.close();
    this.failures += 1;
    this.saying ||= setTimeout(() => this.say("Reconnecting…"), SAY_AFTER_MS);
    if (this.failures === 4) this.ask();
    this.soon(Math.min(250 * 2 ** this.failures, 4_000) * (0.75 + Math.random() / 2));
  }

  // The server answers and refuses the stream: load the page again, which says why.
  async ask() {
    const last = Number(sessionStorage.getItem("steno:reloaded") || 0);
    if (Date.now() - last < 30_000) return;
    try {
      if ((await fetch("/health")).ok) {
        sessionStorage.setItem("steno:reloaded", String(Date.now()));
        location.reload();
      }
    } catch {
      // Not there yet.
    }
  }

  soon(ms) {
    clearTimeout(this.timer);
    if (this.wanted && !this.source) this.timer = setTimeout(() => this.open(), ms);
  }
}

// The function that gives a slot back; null if all are taken.
async function takeSlot() {
  if (!navigator.locks) return () => {};
  for (let n = 0; n < SLOTS; n += 1) {
    const release = await new Promise((resolve) => {
      navigator.locks.request(`steno-stream-${n}`, { ifAvailable: true }, (lock) => {
        if (!lock) return resolve(null);
        return new Promise((done) => resolve(done));
      });
    });
    if (release) return release;
  }
  return null;
}
