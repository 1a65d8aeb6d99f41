"use strict";

/* Lists of destinations, sessions, subscriptions and the like. */

const PAGE = 200; // rows of a page that the broker sorts
const MOST_ROWS = 5000; // rows that are sorted here, where the broker cannot

const number = (key, title, more = {}) => ({ key, title, num: true, width: 96, text: (row) => num(row[key]), sort: true, ...more });
const words = (key, title, more = {}) => ({ key, title, text: (row) => row[key] ?? "–", sort: true, ...more });
const attention = (key) => (row) => (row[key] ? "warn" : "zero");

const OF_QUEUE = [
  number("ready", "Ready"),
  number("unacknowledged", "Unacked", { hint: "Messages that consumers have and have not acknowledged" }),
  number("consumers", "Consumers", { rank: 2, width: 104 }),
  { ...number("received_rate", "In /s", { width: 84, rank: 2 }), text: (row) => rate(row.received_rate) },
  { ...number("delivered_rate", "Out /s", { width: 84, rank: 2 }), text: (row) => rate(row.delivered_rate) },
  { ...number("oldest", "Oldest", { width: 84, rank: 3, hint: "Age of the oldest ready message", sort: false }), text: (row) => span(row.oldest) },
  { ...number("bytes", "Memory", { rank: 3 }), text: (row) => (row.bytes ? bytes(row.bytes) : "0") },
  number("paged", "On disk", { rank: 3, hint: "Messages that are in the store only" }),
  number("dead_letters", "Dead", { width: 76, rank: 3, hint: "Messages that became dead letters", tone: attention("dead_letters") }),
];
const STATE = { key: "state", title: "State", width: 112, rank: 2, text: (row) => stateOf(row), tone: () => "warn" };
const stateOf = (row) => [row.paused && "paused", row.producers_waiting && count(row.producers_waiting, "waits", "wait")].filter(Boolean).join(", ");

const LISTS = {
  destinations: {
    title: "Destinations", ask: "destinations", key: (row) => row.destination, byBroker: true, match: "name",
    columns: [words("destination", "Name", { name: true, sort: false }), { ...words("kind", "Kind", { width: 70, rank: 3, sort: false }) }, ...OF_QUEUE, STATE],
    open: (row) => go("destination", row.destination),
    total: (broker, kind) => (kind === "queue" ? broker.queues : kind === "topic" ? broker.topics : broker.queues + broker.topics),
    kinds: true, sort: "ready", empty: "No destination matches.",
  },
  dead: {
    title: "Dead letters", ask: "destinations", key: (row) => row.destination, byBroker: true, fixed: () => ({ kind: "queue", match: app.settings.dead }),
    about: "Queues of messages that could not be processed. Open one to see the reasons, and to send messages again.",
    columns: [words("destination", "Queue", { name: true, sort: false }), ...OF_QUEUE.filter((column) => column.key !== "dead_letters"), STATE],
    open: (row) => go("destination", row.destination), sort: "ready", empty: "There are no dead letter queues.",
  },
  sessions: {
    title: "Sessions", ask: "sessions", key: (row) => row.session, match: "address, user, client-id",
    columns: [
      words("session", "Session", { name: true }), words("peer", "Address", { rank: 2 }),
      words("user", "User", { width: 96, rank: 2, text: (row) => row.user || "–" }), words("client_id", "Client-id", { width: 130 }),
      words("version", "STOMP", { width: 74, rank: 3 }),
      words("listener", "Listener", { width: 96, rank: 3, text: (row) => row.listener + (row.secure && row.listener !== "tls" ? ", TLS" : "") }),
      { ...number("age", "Age", { width: 80, rank: 2 }), text: (row) => span(row.age) },
      { ...number("received_rate", "In /s", { width: 76, rank: 2 }), text: (row) => rate(row.received_rate) },
      { ...number("delivered_rate", "Out /s", { width: 76, rank: 2 }), text: (row) => rate(row.delivered_rate) },
      number("subscriptions", "Subs", { width: 70 }), number("unacknowledged", "Unacked", { width: 88, rank: 2 }),
      number("transactions", "Trans.", { width: 76, rank: 3, hint: "Open transactions" }),
      { ...number("unwritten", "Unread", { width: 90, rank: 3, hint: "Output that the client has not read", tone: attention("unwritten") }), text: (row) => (row.unwritten ? bytes(row.unwritten) : "0") },
      { ...number("memory", "Memory", { width: 90, rank: 3 }), text: (row) => bytes(row.memory) },
      { key: "waiting", title: "State", width: 90, rank: 2, text: (row) => (row.session === app.client.session ? "this page" : row.waiting ? "waits" : ""), tone: (row) => (row.waiting ? "warn" : "soft") },
    ],
    open: (row) => go("session", row.session), total: (broker) => broker.sessions, empty: "No session matches.",
  },
  subscriptions: {
    title: "Subscriptions", ask: "subscriptions", key: (row) => row.session + "\n" + row.subscription + "\n" + row.destination, match: "destination, session, selector",
    columns: [
      words("destination", "Destination", { name: true }), words("session", "Session", { rank: 2, width: 160 }), words("subscription", "Id", { width: 90, rank: 3 }),
      words("ack", "Ack", { width: 130, rank: 2 }), words("selector", "Selector", { rank: 3 }), words("durable", "Durable", { width: 110, rank: 3 }),
      { ...number("credit", "Credit", { hint: "Further messages that it may have" }), text: (row) => (row.credit >= 1e6 ? "any" : num(row.credit)) },
      number("unacknowledged", "Unacked"), number("waiting", "Waiting", { rank: 2, hint: "Messages that wait for a subscription to a topic" }),
      { key: "kind", title: "Kind", width: 96, rank: 3, text: (row) => [row.browser && "browser", row.exclusive && "exclusive", row.priority && "priority " + row.priority].filter(Boolean).join(", ") },
    ],
    open: (row) => go("session", row.session), total: (broker) => broker.subscriptions, empty: "No subscription matches.",
  },
  durables: {
    title: "Durable subscriptions", ask: "durables", key: (row) => row.name, match: "name, topic, user",
    columns: [words("name", "Name", { name: true }), words("destination", "Topic", { rank: 2 }), words("user", "User", { width: 110, rank: 3 }), ...OF_QUEUE, STATE],
    open: (row) => go("durable", row.name), total: (broker) => broker.durables, empty: "No durable subscription matches.",
  },
  transactions: {
    title: "Open transactions", ask: "transactions", key: (row) => row.session + "\n" + row.transaction, match: "name, session",
    columns: [words("transaction", "Transaction", { name: true }), words("session", "Session"), number("messages", "Messages"), { ...number("bytes", "Size"), text: (row) => bytes(row.bytes) }],
    open: (row) => go("session", row.session), empty: "There are no open transactions.",
  },
};

/* Return an order of rows by a column: numbers from the highest, texts from A. */
function ordering(key, up) {
  const sign = up ? 1 : -1;
  return (one, two) => {
    const a = one[key], b = two[key];
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * sign;
  };
}

class ListView {
  constructor(spec, fields = {}) {
    Object.assign(this, { spec, fields, tokens: [null], sort: spec.sort ? { key: spec.sort, up: false } : null, text: "", kind: "", all: [], asked: -1 });
    this.grid = new Grid({ label: spec.title, columns: spec.columns, key: spec.key, open: spec.open, empty: spec.empty, onSort: (key) => this.sortBy(key) });
    this.grid.sorted(this.sort);
    this.trouble = troubleCard();
    this.says = el("span");
    this.back = el("button", { type: "button", text: "Previous", "aria-label": "Previous page", onclick: () => this.turn(-1) });
    this.next = el("button", { type: "button", text: "Next", "aria-label": "Next page", onclick: () => this.turn(1) });
    this.search = spec.match && el("input", { type: "search", placeholder: "Search: " + spec.match, "aria-label": "Search", autocomplete: "off", spellcheck: "false" });
    if (this.search) this.search.addEventListener("input", () => this.searched());
    this.pick = spec.kinds && el("select", { "aria-label": "Kind", onchange: () => { this.kind = this.pick.value; this.restart(); } },
      [["", "Queues and topics"], ["queue", "Queues"], ["topic", "Topics"]].map(([value, text]) => el("option", { value, text })));
    this.card = el("section", { class: "card listing" }, this.grid.node,
      el("div", { class: "foot" }, this.says, spec.byBroker ? el("div", {}, this.back, this.next) : null));
    this.node = [spec.bare ? null : el("div", { class: "head" }, el("h2", { text: spec.title })),
      spec.about ? el("p", { class: "soft", text: spec.about }) : null,
      this.search ? el("div", { class: "bar" }, this.search, this.pick) : null, this.trouble, this.card].filter(Boolean);
  }

  get title() { return this.spec.title; }

  searched() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => { this.text = this.search.value.trim(); this.restart(); }, 150);
  }

  /* Numbers begin with the highest, texts with A; the second click turns the order, where we sort, and the last ends it. */
  sortBy(key) {
    const text = !this.spec.columns.find((column) => column.key === key).num;
    const first = { key, up: text };
    if (!this.sort || this.sort.key !== key) this.sort = first;
    else if (!this.spec.byBroker && this.sort.up === first.up) this.sort = { key, up: !first.up };
    else this.sort = null;
    this.grid.sorted(this.sort);
    this.restart();
  }

  restart() {
    this.tokens = [null];
    this.grid.top();
    if (this.spec.byBroker) app.soon();
    else this.arrange();
  }

  turn(step) {
    if (step > 0 && this.following) this.tokens.push(this.following);
    else if (step < 0 && this.tokens.length > 1) this.tokens.pop();
    else return;
    this.grid.top();
    app.soon();
  }

  async refresh() {
    try {
      await (this.spec.byBroker ? this.page() : this.everything());
      this.trouble.hidden = true;
    } catch (error) {
      if (error instanceof Refusal && error.field === "page") this.tokens = [null];
      tell(this.trouble, whyText(error));
    }
    this.card.hidden = !this.trouble.hidden && !this.grid.rows.length;
  }

  /* Ask for the page that is shown, sorted and searched by the broker. */
  async page() {
    const fields = { ...this.fields, ...(this.spec.fixed ? this.spec.fixed() : {}), limit: PAGE };
    if (this.text) fields.match = (this.text.startsWith("/") ? "" : "*") + this.text + (this.text.includes("*") ? "" : "*");
    if (this.kind) fields.kind = this.kind;
    if (this.sort) fields.sort = this.sort.key;
    const token = this.tokens.at(-1);
    if (token) fields.page = token;
    const answer = await app.client.ask(this.spec.ask, fields);
    if (token !== this.tokens.at(-1)) return;
    if (!answer.rows.length && this.tokens.length > 1) { this.tokens.pop(); app.soon(); return; }
    this.following = answer.next;
    const before = (this.tokens.length - 1) * PAGE, rows = answer.rows.length;
    this.grid.show(answer.rows, before);
    this.back.disabled = this.tokens.length === 1;
    this.next.disabled = !answer.next;
    const total = !this.text && app.broker && this.spec.total ? Math.max(this.spec.total(app.broker, this.kind), before + rows) : null;
    const last = total !== null ? " of " + num(total) : answer.next ? ", more follow" : " of " + num(before + rows);
    setText(this.says, rows ? num(before + 1) + "–" + num(before + rows) + last : "0");
  }

  /* Ask for all rows, or so many as are sorted here; a long list only now and then. */
  async everything() {
    const now = performance.now();
    if (this.asked >= 0 && now - this.asked < (this.all.length > 1000 ? 5000 : 0)) return;
    this.asked = now;
    const rows = [];
    let page = null;
    do {
      const answer = await app.client.ask(this.spec.ask, { ...this.fields, limit: 1000, ...(page ? { page } : {}) });
      rows.push(...answer.rows);
      page = answer.next;
    } while (page && rows.length < MOST_ROWS);
    this.all = rows;
    this.more = Boolean(page);
    this.arrange();
  }

  arrange() {
    const wanted = this.text.toLowerCase();
    let rows = this.all;
    if (wanted) rows = rows.filter((row) => Object.values(row).some((value) => typeof value === "string" && value.toLowerCase().includes(wanted)));
    if (this.sort) rows = [...rows].sort(ordering(this.sort.key, this.sort.up));
    this.grid.show(rows);
    const of = wanted ? num(rows.length) + " of " + num(this.all.length) : num(rows.length);
    setText(this.says, of + (this.more ? ", the first of more" : ""));
  }
}
