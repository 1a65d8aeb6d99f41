"use strict";

/* The messages of a queue: a list, and the one that is chosen. Looking at them changes nothing. */

const SHOWN = 50; // messages of a page
const PART = 8192; // bytes of a body at first
const WHOLE_BODY = 65536; // bytes of a body at most
const DEAD = ["dead-letter-reason", "original-destination", "dead-letter-attempts", "dead-letter-time"];

// What a dead letter says of itself; its headers mean nothing unless the broker made it.
const header = (message, name) => (message.origin === null && DEAD.includes(name) ? [null, null] : message.headers.find((pair) => pair[0] === name) || [null, null])[1];

class MessageBrowser {
  constructor(view) {
    Object.assign(this, { view, tokens: [null], rows: [], selector: "", chosen: null, asked: false, dead: false, shape: "Pretty" });
    this.list = el("section", { class: "card listing" });
    this.detail = el("section", { class: "card message", "aria-label": "The chosen message" });
    this.says = el("span");
    this.back = el("button", { type: "button", text: "Previous", onclick: () => this.turn(-1) });
    this.next = el("button", { type: "button", text: "Next", onclick: () => this.turn(1) });
    this.input = el("input", { type: "search", placeholder: "Selector, as in SUBSCRIBE: region = 'north'", "aria-label": "Selector", autocomplete: "off", spellcheck: "false" });
    this.input.addEventListener("change", () => { this.selector = this.input.value.trim(); this.tokens = [null]; this.load(); });
    this.reload = el("button", { type: "button", text: "Refresh", title: "Look again (r)", onclick: () => this.load() });
    this.trouble = troubleCard();
    this.foot = el("div", { class: "foot" }, this.says, el("div", {}, this.back, this.next));
    this.pane = el("div", { class: "browse" }, this.list, this.detail);
    this.node = [el("div", { class: "bar" }, this.input, this.reload), this.trouble, this.pane];
    this.build(false);
    this.idle();
  }

  /* Dead letters have columns of their own. */
  build(dead) {
    this.dead = dead;
    const of = (name) => (row) => header(row, name) ?? "–";
    const more = dead ? [{ key: "reason", title: "Reason", width: 150, text: of(DEAD[0]), tone: () => "bad" }, { key: "from", title: "From", text: of(DEAD[1]) },
      { key: "tries", title: "Attempts", num: true, width: 100, rank: 3, text: of(DEAD[2]) }]
      : [{ key: "type", title: "Content-type", rank: 2, text: (row) => header(row, "content-type") ?? "–" }, { key: "attempts", title: "Failed", num: true, width: 70, rank: 2, text: (row) => num(row.attempts) }];
    this.grid = new Grid({
      label: "Messages", key: (row) => row.message_id, empty: "No ready messages.", open: (row) => this.open(row),
      columns: [{ key: "seq", title: "Message-id", name: true, text: (row) => row.message_id }, ...more,
        { key: "size", title: "Size", num: true, width: 78, text: (row) => bytes(row.size) }, { key: "age", title: "Age", num: true, width: 68, text: (row) => span(row.age) }],
    });
    this.list.replaceChildren(this.grid.node, this.foot);
  }

  idle() { this.detail.replaceChildren(el("p", { class: "none", text: "Choose a message to see its headers and body." })); }

  none(text) {
    this.pane.hidden = this.input.hidden = this.reload.hidden = true;
    tell(this.trouble, text);
    this.trouble.className = "card trouble note";
  }

  turn(step) {
    if (step > 0 && this.following) this.tokens.push(this.following);
    else if (step < 0 && this.tokens.length > 1) this.tokens.pop();
    else return;
    this.load();
  }

  fields(more) {
    const page = this.tokens.at(-1);
    return { destination: this.view.name, ...(this.selector ? { selector: this.selector } : {}), ...(page ? { page } : {}), ...more };
  }

  async load() {
    this.asked = true;
    try {
      const answer = await app.client.ask("messages", this.fields({ limit: SHOWN, body: PART }));
      const dead = answer.rows.some((row) => header(row, DEAD[0]) !== null);
      if (dead !== this.dead && answer.rows.length) this.build(dead);
      this.rows = answer.rows;
      this.following = answer.next;
      this.grid.show(answer.rows);
      this.trouble.hidden = true;
      const before = (this.tokens.length - 1) * SHOWN;
      setText(this.says, (answer.rows.length ? num(before + 1) + "–" + num(before + answer.rows.length) : "0") + ", as of " + clock(answer.time).slice(11));
      this.back.disabled = this.tokens.length === 1;
      this.next.disabled = !answer.next;
      if (this.chosen && !answer.rows.some((row) => row.message_id === this.chosen)) { this.chosen = null; this.idle(); }
      this.view.buttons();
    } catch (error) {
      tell(this.trouble, whyText(error));
    }
  }

  open(message) {
    this.chosen = message.message_id;
    const name = this.view.name, from = header(message, "original-destination"), after = () => this.load();
    const act = (text, run, danger = false) => el("button", { type: "button", text, class: danger ? "danger" : "", onclick: run });
    const facts = [["Size", bytes(message.size)], ["Age", span(message.age)], ["Priority", String(message.priority)],
      ["Stored", message.persistent ? "yes" : "no"], ["Failed deliveries", num(message.attempts)], ["Expires", message.expires === null ? "never" : clock(message.expires)]];
    const reason = header(message, DEAD[0]);
    const told = reason === null ? null : el("p", { class: "bad", text: "Dead letter: " + reason + (from ? ", from " + from : "") +
      (header(message, DEAD[2]) ? ", after " + count(Number(header(message, DEAD[2])), "attempt") : "") + "." });
    this.detail.replaceChildren(...[
      el("p", { class: "id", text: message.message_id }),
      el("p", { class: "facts" }, facts.map(([title, text]) => el("span", {}, title + " ", el("b", { text })))),
      el("div", { class: "bar" }, reason !== null ? act("Send again…", () => orders.againOne(name, message, from || "the queue it came from", after)) : null,
        act("Move…", () => orders.moveOne(name, message, after)), act("Delete…", () => orders.removeOne(name, message, after), true)),
      told, this.body(message), el("h3", { text: count(message.headers.length, "header") }), pairs(message.headers)].filter(Boolean));
    this.detail.scrollTop = 0;
    if (matchMedia("(max-width: 1100px)").matches) this.detail.scrollIntoView({ block: "nearest" });
  }

  body(message) {
    const octets = bytesOf(message);
    const pretty = message.encoding === "base64" || message.truncated ? null : prettyJson(message.body) ?? prettyXml(message.body);
    const shapes = { Pretty: pretty, Text: message.encoding === "base64" ? null : message.body, Hex: hexLines(octets) };
    const names = Object.keys(shapes).filter((name) => shapes[name] !== null);
    const pre = el("pre", { tabindex: 0, "aria-label": "Body" });
    const buttons = names.map((name) => el("button", { type: "button", text: name, onclick: () => { this.shape = name; show(name); } }));
    const show = (name) => {
      pre.textContent = shapes[name] || "(empty)";
      pre.className = name === "Hex" ? "hex" : "";
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(names[at] === name)));
    };
    show(names.includes(this.shape) ? this.shape : names[0]);
    const rest = message.truncated ? el("p", { class: "soft" }, "The first " + bytes(octets.length) + " of " + bytes(message.size) + ". ",
      octets.length < Math.min(message.size, WHOLE_BODY) - 4 ? el("button", { type: "button", class: "link", text: "Show up to 64 KiB", onclick: () => this.more(message) }) : null) : null;
    return el("div", {}, el("div", { class: "bar" }, el("h3", { text: "Body" }), el("div", { class: "push" }, buttons)), rest, pre);
  }

  /* Ask for one message alone: the bodies of an answer together are limited. */
  async more(message) {
    try {
      const at = this.rows.findIndex((row) => row.message_id === message.message_id);
      const fields = this.fields({ limit: 1, body: WHOLE_BODY });
      if (at > 0) fields.page = (await app.client.ask("messages", this.fields({ limit: at, body: 0 }))).next;
      const [row] = (await app.client.ask("messages", fields)).rows;
      if (row && row.message_id === message.message_id) this.open(row);
      else throw new Error("The queue has changed meanwhile: refresh the list.");
    } catch (error) {
      toast(whyText(error), true);
    }
  }
}

function pairs(rows) {
  return el("table", { class: "pairs" }, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row", text: name }), el("td", { text: value }))));
}
