// What a person is about to say. A draft survives a reload. What was sent goes into an outbox with
// its key and stays there until the server has said that it is stored: so a double click, a reload
// or two tabs send it once, and a server that is away gets it when it is back.

const OUTBOX = "steno:outbox";
const AGAIN_MS = 2_000;
const FILES_MAX = 20;

function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function save(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false; // full, or off: then it lives as long as this page
  }
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export class Composer {
  constructor(complain) {
    this.form = document.getElementById("composer");
    this.complain = complain;
    this.unkept = []; // sent, and too large to be stored here
    this.sending = false;
    if (!this.form) {
      this.flush();
      return;
    }
    this.session = this.form.dataset.session;
    this.say = document.getElementById("say");
    this.files = [];
    this.draft = `steno:draft:${this.session || "new"}`;
    this.say.value = load(this.draft, "") || this.say.value;
    this.say.addEventListener("input", () => {
      save(this.draft, this.say.value || null);
      this.grow();
    });
    this.say.addEventListener("keydown", (event) => this.key(event));
    this.form.addEventListener("submit", (event) => this.submit(event));
    this.attachments();
    this.grow();
    addEventListener("online", () => this.flush());
    addEventListener("storage", () => this.show());
    this.show();
    this.flush();
  }

  grow() {
    this.say.rows = Math.min(12, Math.max(2, this.say.value.split("\n").length));
  }

  key(event) {
    const touches = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return;
    if (touches && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.form.requestSubmit(document.getElementById("send"));
  }

  submit(event) {
    event.preventDefault();
    const text = this.say.value;
    if (!text.trim()) return;
    const sent = {
      key: newKey(),
      session: this.session,
      text,
      mode: event.submitter?.value === "steer" ? "steer" : "queue",
      model: document.getElementById("new-model")?.value ?? "",
      files: this.files,
    };
    this.put(sent);
    this.say.value = "";
    save(this.draft, null);
    this.files = [];
    this.chips();
    this.grow();
    this.show();
    this.flush();
  }

  // --- the outbox

  all() {
    return [...load(OUTBOX, []), ...this.unkept];
  }

  put(sent) {
    if (!save(OUTBOX, [...load(OUTBOX, []), sent])) this.unkept.push(sent);
  }

  drop(key) {
    save(OUTBOX, load(OUTBOX, []).filter((each) => each.key !== key));
    this.unkept = this.unkept.filter((each) => each.key !== key);
  }

  show(word = "Sending…") {
    const place = document.getElementById("outbox");
    if (!place) return;
    const mine = this.all().filter((each) => each.session === this.session);
    place.replaceChildren(
      ...mine.map((each) => {
        const row = document.createElement("p");
        row.className = "sending";
        const tag = document.createElement("span");
        tag.className = "tag";
        tag.textContent = word;
        row.append(tag, each.text);
        return row;
      }),
    );
  }

  async flush() {
    if (this.sending) return;
    this.sending = true;
    try {
      for (let next; (next = this.all()[0]); ) {
        if (!(await this.post(next))) {
          this.show("Not sent yet. Trying again…");
          setTimeout(() => this.flush(), AGAIN_MS);
          return;
        }
      }
    } finally {
      this.sending = false;
    }
    this.show();
  }

  // Whether there is an answer: stored, or refused for good.
  async post(sent) {
    let answer;
    try {
      answer = await fetch("/page/send", {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify(sent),
      });
    } catch {
      return false;
    }
    if (answer.status >= 500 || answer.status === 429 || answer.status === 408) return false;
    if (answer.status === 401) {
      location.assign("/login");
      return false;
    }
    const said = await answer.json().catch(() => ({}));
    this.drop(sent.key);
    if (!answer.ok) {
      this.complain(said.detail || "This could not be sent. Nothing was stored.");
      if (this.say && sent.session === this.session && !this.say.value) {
        this.say.value = sent.text;
        save(this.draft, sent.text);
      }
    } else if (!sent.session && !this.session) location.assign(said.to);
    return true;
  }

  // --- attachments

  attachments() {
    const input = document.getElementById("files");
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    this.say.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) {
        event.preventDefault();
        this.add(files);
      }
    });
    this.form.addEventListener("dragover", (event) => event.preventDefault());
    this.form.addEventListener("drop", (event) => {
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    for (const file of files.slice(0, FILES_MAX - this.files.length)) {
      try {
        this.files.push({ name: file.name || "file", data: await base64(file) });
      } catch {
        this.complain(`${file.name} cannot be read.`);
      }
    }
    this.chips();
  }

  chips() {
    document.getElementById("attached").replaceChildren(
      ...this.files.map((file) => {
        const item = document.createElement("li");
        const remove = document.createElement("button");
        remove.type = "button";
        remove.textContent = "×";
        remove.setAttribute("aria-label", `Remove ${file.name}`);
        remove.addEventListener("click", () => {
          this.files = this.files.filter((each) => each !== file);
          this.chips();
        });
        item.append(file.name, remove);
        return item;
      }),
    );
  }
}
