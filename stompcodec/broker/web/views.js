"use strict";

/* The views of the whole broker, of one queue and of one session. */

class Overview {
  constructor() {
    this.title = "Overview";
    this.plots = {
      messages: new Plot("Messages", "accepted per second", rate, 1),
      ready: new Plot("Deepest queues", "ready", num, 1),
      commit: new Plot("Commit to the store", "ms", millis, 0.001),
      memory: new Plot("Memory account", "", bytes, 1024, 2),
      rss: new Plot("Memory of the process", "", bytes, 1024, 2),
      sessions: new Plot("Sessions", "", num, 1),
    };
    this.tiles = tiles([
      ["Sessions", (broker) => num(broker.sessions)], ["Refused", (broker) => [num(broker.sessions_refused), broker.sessions_refused ? "warn" : ""]],
      ["Queues", (broker) => num(broker.queues)], ["Topics", (broker) => num(broker.topics)],
      ["Accepted", (broker) => num(broker.messages)], ["Delivered", (broker) => num(broker.delivered)], ["Acknowledged", (broker) => num(broker.acknowledged)],
      ["Up for", (broker) => span(broker.uptime)],
    ]);
    this.trouble = troubleCard();
    this.alarm = troubleCard();
    this.top = new Grid({
      label: "Deepest queues", key: (row) => row.destination, open: (row) => go("destination", row.destination), empty: "No queue has messages.",
      columns: [words("destination", "Deepest queues", { name: true, sort: false }), number("ready", "Ready", { sort: false }), number("unacknowledged", "Unacked", { sort: false, rank: 2 }),
        { ...number("oldest", "Oldest", { sort: false, width: 84 }), text: (row) => span(row.oldest) }],
    });
    this.busy = new Grid({
      label: "Busiest destinations", key: (row) => row.destination, open: (row) => go("destination", row.destination), empty: "No messages lately.",
      columns: [words("destination", "Busiest destinations", { name: true, sort: false }),
        { ...number("received_rate", "In /s", { sort: false }), text: (row) => rate(row.received_rate) },
        { ...number("delivered_rate", "Out /s", { sort: false }), text: (row) => rate(row.delivered_rate) },
        number("consumers", "Consumers", { sort: false, rank: 2, width: 104 })],
    });
    const listing = (grid) => el("section", { class: "card listing" }, grid.node);
    this.parts = [this.tiles.node, el("div", { class: "plots" }, Object.values(this.plots).map((plot) => plot.node)),
      el("div", { class: "two" }, listing(this.top), listing(this.busy))];
    this.node = [this.trouble, this.alarm, ...this.parts];
  }

  async refresh() {
    const [deep, busy] = await Promise.allSettled([
      app.client.ask("destinations", { kind: "queue", sort: "ready", limit: 6 }), app.client.ask("destinations", { sort: "received_rate", limit: 6 }),
    ]);
    const why = app.refused || [deep, busy].filter((each) => each.status === "rejected").map((each) => whyText(each.reason))[0] || "";
    tell(this.trouble, why);
    for (const part of this.parts) part.hidden = !app.broker;
    if (deep.status === "fulfilled") await this.depths(deep.value.rows);
    if (busy.status === "fulfilled") this.busy.show(busy.value.rows.filter((row) => row.received_rate || row.delivered_rate));
    this.show();
  }

  async depths(rows) {
    const found = rows.filter((row) => row.ready);
    this.top.show(found);
    const time = app.time;
    for (const row of found) {
      if (!app.deep.has(row.destination)) app.deep.set(row.destination, (await fill({}, ["ready"], { destination: row.destination })).ready);
      app.deep.get(row.destination).add(time, row.ready);
    }
    for (const [name, series] of app.deep) if (series.points.at(-1)[0] < time - SECONDS) app.deep.delete(name);
    const lines = found.slice(0, 5).map((row) => ({ name: row.destination, series: app.deep.get(row.destination) }));
    this.plots.ready.show(lines, time, lines.length ? num(found[0].ready) : "0");
  }

  show() {
    const { broker, store, series, time } = app;
    if (!broker) return;
    this.tiles.show(broker);
    const one = (plot, names) => plot.show(names.map(([name, key]) => ({ name, series: series[key] })), time);
    one(this.plots.messages, [["accepted", "messages_rate"], ["delivered", "delivered_rate"], ["acknowledged", "acknowledged_rate"]]);
    one(this.plots.commit, [["last", "commit_time"], ["longest of 100", "commit_time_most"]]);
    one(this.plots.memory, [["of " + bytes(broker.memory_limit), "memory_used"]]);
    one(this.plots.rss, [[num(broker.descriptors) + " descriptors", "rss"]]);
    one(this.plots.sessions, [["", "sessions"]]);
    const alarms = store ? [store.refusing && "The disk is nearly full: messages to be stored are refused.",
      store.failures && "The store has failed " + count(store.failures, "time") + ". See the broker's log.",
      store.behind && "The disk is slower than the senders, which wait."].filter(Boolean) : [];
    tell(this.alarm, alarms.join(" "));
  }
}

const HOLDERS = ["queues", "topics", "retained", "scheduled", "commits", "sessions", "connections", "destinations", "keys", "other"];

class BrokerView {
  constructor() {
    this.title = "Broker";
    this.about = tiles([
      ["Version", (broker) => broker.version], ["Dialect", (broker) => broker.dialect], ["Process", (broker) => String(broker.pid)], ["Its memory", (broker) => bytes(broker.rss)],
      ["Its descriptors", (broker) => num(broker.descriptors)], ["Up for", (broker) => span(broker.uptime)],
      ["Sessions since the start", (broker) => num(broker.sessions_total)], ["Refused", (broker) => num(broker.sessions_refused)], ["Duplicates refused", (broker) => num(broker.duplicates)],
      ["Level of the log", (broker) => broker.log_level],
    ]);
    this.store = tiles([
      ["Kind", (store) => store.kind], ["Size", (store) => bytes(store.bytes)], ["Free", (store) => [bytes(store.free), store.refusing ? "bad" : ""]], ["Large bodies", (store) => bytes(store.large_bytes)],
      ["Commits", (store) => num(store.commits)], ["Failed commits", (store) => [num(store.failures), store.failures ? "bad" : ""]],
      ["Last commit, ms", (store) => millis(store.commit_time)], ["Longest of 100, ms", (store) => millis(store.commit_time_most)], ["Pending operations", (store) => num(store.pending)],
      ["Behind", (store) => [store.behind ? "yes" : "no", store.behind ? "warn" : ""]], ["Producers that wait", (store) => num(store.producers_waiting)], ["Written", (store) => bytes(store.written)],
    ]);
    this.level = el("button", { type: "button", text: "Level of the log…", onclick: () => orders.level(app.broker.log_level) });
    this.used = el("p");
    this.stack = el("div", { class: "stack", "aria-hidden": true }, HOLDERS.map((_, at) => el("i", { class: "c" + (at % 6 + 1) })));
    this.legend = el("div", { class: "keys" }, HOLDERS.map((_, at) => el("span", {}, el("i", { class: "c" + (at % 6 + 1) }), el("b"))));
    this.large = el("table", { class: "pairs" });
    this.trouble = troubleCard();
    this.parts = [this.about.node, el("h3", { text: "Store" }), this.store.node, el("h3", { text: "Memory account" }),
      el("section", { class: "card" }, this.used, this.stack, this.legend), el("section", { class: "card" }, el("h3", { text: "Largest holders" }), this.large)];
    this.node = [el("div", { class: "head" }, el("h2", { text: "Broker" }), el("div", { class: "push" }, this.level)), this.trouble, ...this.parts];
  }

  async refresh() {
    let memory = null, why = app.refused;
    try {
      memory = (await app.client.ask("memory")).result;
    } catch (error) {
      why = why || whyText(error);
    }
    tell(this.trouble, why || "");
    for (const part of [...this.parts, this.level]) part.hidden = !app.broker;
    if (app.broker) this.about.show(app.broker);
    if (app.store) this.store.show(app.store);
    if (memory) this.holders(memory);
  }

  holders(memory) {
    setText(this.used, bytes(memory.used) + " of " + bytes(memory.limit) + " used. Senders wait above " + bytes(memory.senders_wait_above) +
      ", and the largest session ends above " + bytes(memory.sessions_end_above) + ".");
    HOLDERS.forEach((holder, at) => {
      this.stack.children[at].style.width = (100 * memory[holder]) / Math.max(memory.limit, memory.used) + "%";
      setText(this.legend.children[at].lastChild, holder + "  " + bytes(memory[holder]));
    });
    const rows = [...memory.largest_queues.map((each) => [each.destination, each.bytes]), ...memory.largest_sessions.map((each) => ["session " + each.session, each.bytes])];
    this.large.replaceChildren(...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row", text: name }), el("td", { text: bytes(value) }))));
  }
}

/* The row of a list that is wanted, on its first page or on all of them; null without one. */
async function findRow(list, fields, isWanted, all) {
  let page = null;
  do {
    const answer = await app.client.ask(list, { ...fields, limit: 1000, ...(page ? { page } : {}) });
    const row = answer.rows.find(isWanted);
    if (row) return row;
    page = all ? answer.next : null;
  } while (page);
  return null;
}

/* One queue, topic or durable subscription. */
class DestinationView {
  constructor(kind, name) {
    Object.assign(this, { kind, name, title: name, row: null, series: null });
    this.badges = el("span");
    this.trouble = troubleCard();
    const act = (text, order, danger) => el("button", { type: "button", text, class: danger ? "danger" : "", onclick: () => this.row && order(this.row, name) });
    this.again = act("Send again…", orders.again);
    this.pause = act("Pause…", orders.pause);
    this.purge = act("Purge…", orders.purge, true);
    this.move = act("Move…", orders.move);
    this.remove = el("button", { type: "button", text: "Delete…", class: "danger", onclick: () => this.row && orders.remove(this.row, name, this.what) });
    this.tiles = tiles([
      ["Ready", (row) => num(row.ready)], ["Unacknowledged", (row) => num(row.unacknowledged)], ["Scheduled", (row) => num(row.scheduled)], ["On disk only", (row) => num(row.paged)],
      ["Oldest", (row) => span(row.oldest)], ["Memory", (row) => bytes(row.bytes)], ["Consumers", (row) => num(row.consumers)], ["Credit", (row) => num(row.credit)],
      ["Senders that wait", (row) => [num(row.producers_waiting), row.producers_waiting ? "warn" : ""]], ["Received", (row) => num(row.received)], ["Delivered", (row) => num(row.delivered)],
      ["Redelivered", (row) => num(row.redelivered)], ["Expired", (row) => num(row.expired)], ["Dropped", (row) => [num(row.dropped), row.dropped ? "warn" : ""]],
      ["Dead letters", (row) => [num(row.dead_letters), row.dead_letters ? "warn" : ""]],
    ]);
    this.rates = new Plot("Rates", "received per second", rate, 1);
    this.depth = new Plot("Depth", "ready", num, 1);
    this.plots = el("div", { class: "plots" }, this.rates.node, this.depth.node);
    this.browser = new MessageBrowser(this);
    this.subs = new ListView({ ...LISTS.subscriptions, match: null, bare: true, empty: "It has no subscriptions." }, { destination: name });
    this.tabs = tabs([["Messages", this.browser.node], ["Subscriptions", this.subs.node]], (at) => { this.tab = at; app.soon(); });
    this.tab = 0;
    this.node = [el("div", { class: "head" }, el("h2", { text: name }), this.badges,
      el("div", { class: "push" }, this.again, this.pause, this.move, this.purge, this.remove)), this.trouble, this.tiles.node, this.plots, this.tabs.node];
    this.buttons();
  }

  get what() { return this.kind === "durable" ? "durable subscription" : this.row ? this.row.kind : "destination"; }

  async refresh() {
    try {
      this.row = await this.find();
      tell(this.trouble, this.row ? "" : "There is no destination with this name now. It comes back with its next message.");
    } catch (error) {
      this.row = null;
      tell(this.trouble, whyText(error));
    }
    for (const part of [this.tiles.node, this.plots, this.tabs.node]) part.hidden = !this.row;
    this.buttons();
    if (!this.row) return;
    this.series ??= await fill({}, ["ready", "unacked", "in", "out"], { destination: this.name });
    this.show(this.row);
    if (this.tab === 1) await this.subs.refresh();
    else if (this.what === "topic") this.browser.none("A topic keeps no messages. Those of its subscriptions are listed with them.");
    else if (!this.browser.asked) await this.browser.load();
  }

  /* The broker's `match` knows only `*`, which a name may contain: then others match, too. */
  find() {
    const durable = this.kind === "durable", key = durable ? "name" : "destination";
    return findRow(durable ? "durables" : "destinations", { match: this.name }, (each) => each[key] === this.name, this.name.includes("*"));
  }

  buttons() {
    const row = this.row, queue = row && this.what !== "topic";
    for (const each of [this.pause, this.move, this.purge]) each.hidden = !queue;
    this.remove.hidden = !row;
    this.again.hidden = !(queue && (this.browser.dead || like(this.name, app.settings.dead)));
    setText(this.pause, row && row.paused ? "Resume…" : "Pause…");
    const found = row ? [[this.what], row.paused && ["paused", "warn"], row.owner && ["of session " + row.owner]].filter(Boolean) : [];
    const text = JSON.stringify(found);
    if (text !== this.told) this.badges.replaceChildren(...found.flatMap(([each, tone]) => [el("span", { class: "badge " + (tone || ""), text: each }), " "]));
    this.told = text;
  }

  show(row) {
    const { series } = this, time = app.time;
    series.in.add(time, row.received_rate);
    series.out.add(time, row.delivered_rate);
    series.ready.add(time, row.ready);
    series.unacked.add(time, row.unacknowledged);
    this.tiles.show(row);
    this.rates.show([{ name: "in", series: series.in }, { name: "out", series: series.out }], time);
    this.depth.show([{ name: "ready", series: series.ready }, { name: "unacknowledged", series: series.unacked }], time);
  }
}

/* Whether a name matches a pattern with `*`. */
const like = (name, pattern) => new RegExp("^" + pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\/]/g, "\\$&")).join(".*") + "$", "s").test(name);

function tabs(parts, chosen) {
  const buttons = parts.map(([title], at) => el("button", { type: "button", role: "tab", text: title, "aria-selected": String(!at), onclick: () => pick(at) }));
  const panels = parts.map(([, nodes]) => nodes);
  const bar = el("div", { class: "tabs", role: "tablist" }, buttons);
  const boxes = panels.map((nodes, at) => el("div", { role: "tabpanel", class: "panel", hidden: at > 0, "aria-label": parts[at][0] }, nodes));
  bar.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && at >= 0) { const to = (at + step + buttons.length) % buttons.length; pick(to); buttons[to].focus(); }
  });
  function pick(at) {
    buttons.forEach((button, place) => { button.setAttribute("aria-selected", String(place === at)); button.tabIndex = place === at ? 0 : -1; boxes[place].hidden = place !== at; });
    chosen(at);
  }
  return { node: el("div", { class: "panel" }, bar, ...boxes), pick };
}

/* One session. */
class SessionView {
  constructor(id) {
    Object.assign(this, { id, title: id, row: null });
    this.trouble = troubleCard();
    this.close = el("button", { type: "button", class: "danger", text: "Close the session…", onclick: () => this.row && orders.close(this.row) });
    this.close.hidden = true;
    this.tiles = tiles([
      ["Address", (row) => row.peer], ["User", (row) => row.user || "–"], ["Client-id", (row) => row.client_id ?? "–"], ["STOMP", (row) => row.version],
      ["Listener", (row) => row.listener + (row.secure ? ", TLS" : "")], ["Connected for", (row) => span(row.age)],
      ["In, per second", (row) => rate(row.received_rate)], ["Out, per second", (row) => rate(row.delivered_rate)], ["Unacknowledged", (row) => num(row.unacknowledged)],
      ["Transactions", (row) => num(row.transactions)], ["Output it has not read", (row) => [bytes(row.unwritten), row.unwritten ? "warn" : ""]], ["Memory", (row) => bytes(row.memory)],
      ["State", (row) => (row.waiting ? ["waits", "warn"] : ["is read", ""])],
    ]);
    this.subs = new ListView({ ...LISTS.subscriptions, match: null, bare: true, empty: "It has no subscriptions.", open: (row) => go("destination", row.destination) }, { session: id });
    this.rest = [this.tiles.node, el("h3", { text: "Subscriptions" }), ...this.subs.node];
    this.node = [el("div", { class: "head" }, el("h2", { text: "Session " + id }), el("div", { class: "push" }, this.close)), this.trouble, ...this.rest];
  }

  async refresh() {
    try {
      this.row = await this.find();
      tell(this.trouble, this.row ? "" : "This session has ended.");
    } catch (error) {
      this.row = null;
      tell(this.trouble, whyText(error));
    }
    this.close.hidden = !this.row || this.id === app.client.session;
    for (const part of this.rest) part.hidden = !this.row;
    if (!this.row) return;
    this.tiles.show(this.row);
    await this.subs.refresh();
  }

  find() { return findRow("sessions", {}, (each) => each.session === this.id, true); }
}
