"use strict";

/* What holds the page together: the connection, the clock, the views, the keyboard. */

const NAV = [
  ["overview", "Overview", null], ["destinations", "Destinations", (broker) => broker.queues + broker.topics], ["sessions", "Sessions", (broker) => broker.sessions],
  ["subscriptions", "Subscriptions", (broker) => broker.subscriptions], ["durables", "Durables", (broker) => broker.durables],
  ["dead", "Dead letters", (broker) => broker.dead_letters], ["transactions", "Transactions", null], ["broker", "Broker", null],
];
const EVERY = 1000; // ms between two questions
const KEYS = [
  ["1 … 8", "the views"], ["/", "search"], ["↓ ↑ or j k", "the next, the previous row"], ["Enter", "open the row"], ["Esc", "back"],
  ["[ ]", "the previous, the next page"], ["r", "refresh the messages of a queue"], ["p", "freeze: stop refreshing"], ["t", "light or dark"], ["?", "this list"],
];
const VIEWS = { overview: Overview, broker: BrokerView };
// What the plots show: the broker keeps it for ten minutes, in this order.
const KEPT = ["messages_rate", "delivered_rate", "acknowledged_rate", "sessions", "memory_used", "rss", "commit_time", "commit_time_most"];

const app = {
  settings: { prefix: "/management/", temp: "/temp-queue/", dead: "/queue/DLQ.*", host: "/", subscribe: true, ...JSON.parse(document.body.dataset.settings || "{}") },
  broker: null, store: null, refused: "", time: 0, frozen: false, busy: false, again: false, view: null, asked: 0, deep: new Map(), series: {}, filled: false,
  soon() { clearTimeout(this.timer); if (this.busy) this.again = true; else tick(); },
};

function go(kind, name) { location.hash = "#/" + kind + "/" + encodeURIComponent(name); }

/* ---- the clock ---- */

async function tick() {
  clearTimeout(app.timer);
  if (app.busy || document.hidden || app.client.state !== "up" || !app.view) return;
  app.busy = true;
  try {
    await pulse();
    await app.view?.refresh(); // a lost right ends it meanwhile
  } catch (error) {
    console.error(error);
  } finally {
    app.busy = false;
  }
  const wait = app.again ? 0 : EVERY;
  app.again = false;
  if (!app.frozen || !wait) app.timer = setTimeout(tick, wait);
}

/* Begin plots with what the broker has kept: of itself, or of the queue in the fields. */
async function fill(series, keys, fields) {
  for (const key of keys) series[key] = new Series();
  const kept = await app.client.ask("history", fields).then((answer) => answer.result, () => ({ seconds: [] })), time = performance.now() / 1000;
  for (const [age, ...numbers] of kept.seconds) keys.forEach((key, at) => series[key].add(time - age, numbers[at]));
  return series;
}

/* Ask what all views need, and note the numbers that the plots show. */
async function pulse() {
  if (!app.filled) await fill(app.series, KEPT);
  app.filled = true;
  const [broker, store] = await Promise.allSettled([app.client.ask("broker"), app.client.ask("store")]);
  app.asked += 1;
  app.time = performance.now() / 1000;
  app.refused = broker.status === "rejected" ? whyText(broker.reason) : "";
  app.broker = broker.status === "fulfilled" ? broker.value.result : broker.reason.forbidden ? null : app.broker;
  app.store = store.status === "fulfilled" ? store.value.result : null;
  const now = { ...app.broker, ...app.store };
  if (app.broker) for (const key of KEPT) app.series[key].add(app.time, now[key] ?? null);
  counts();
}

function counts() {
  const { broker } = app;
  setText(byId("about"), broker ? "version " + broker.version + " · dialect " + broker.dialect + " · " + location.host : location.host);
  NAV.forEach(([, , value], at) => setText(byId("nav").children[at].lastChild, broker && value ? num(value(broker)) : ""));
}

/* ---- the connection ---- */

function showState(state, why) {
  const says = { connecting: "Connecting…", up: "Live", login: "Not logged in", down: why };
  byId("state").className = state;
  setText(byId("says"), app.frozen && state === "up" ? "Frozen" : says[state]);
  byId("leave").hidden = !(state === "up" && app.client.login);
  byId("nav").hidden = state === "login";
}

function onState(state, why) {
  showState(state, why);
  if (state === "login") loginForm(why);
  else if (state === "up") {
    app.filled = false;
    if (!app.view) route();
    else app.soon();
  }
}

function loginForm(why) {
  app.view = null;
  app.broker = app.store = null;
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  app.deep.clear();
  const name = el("input", { name: "login", autocomplete: "username", autocapitalize: "off", spellcheck: "false", required: true });
  const passcode = el("input", { name: "passcode", type: "password", autocomplete: "current-password" });
  const host = el("input", { name: "host", value: app.settings.host, autocomplete: "off", spellcheck: "false" });
  const form = el("form", { method: "dialog" }, el("h2", { text: "Log in to the broker" }),
    el("p", { class: "soft", text: "With a user of the broker who may manage it. The passcode stays in the memory of this page." }),
    why && app.tried ? el("p", { class: "bad", role: "alert", text: why.replace(/\.$/, "") + "." }) : null,
    el("label", { text: "Login" }, name), el("label", { text: "Passcode" }, passcode), el("label", { text: "Virtual host" }, host),
    el("button", { class: "main", type: "submit", text: "Log in" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    app.tried = true;
    app.client.login = { name: name.value, passcode: passcode.value };
    app.client.settings.host = host.value;
    passcode.value = "";
    app.client.open();
  });
  byId("main").replaceChildren(el("section", { class: "card", id: "login", "aria-label": "Login" }, form));
  name.focus();
}

/* ---- views ---- */

function route(event) {
  if (app.client.state === "login") return;
  const [, kind = "overview", name = ""] = location.hash.split("/");
  let decoded = "";
  try {
    decoded = decodeURIComponent(name);
  } catch {
    decoded = name;
  }
  if (kind === "destination" || kind === "durable") app.view = new DestinationView(kind, decoded);
  else if (kind === "session") app.view = new SessionView(decoded);
  else if (Object.hasOwn(LISTS, kind)) app.view = new ListView(LISTS[kind]);
  else app.view = new (VIEWS[Object.hasOwn(VIEWS, kind) ? kind : "overview"])();
  const section = { destination: "destinations", durable: "durables", session: "sessions" }[kind] || kind;
  NAV.forEach(([key], at) => {
    const button = byId("nav").children[at];
    if (key === section || (at === 0 && !NAV.some((each) => each[0] === section))) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  });
  document.title = printable(app.view.title) + " – stompcodec broker";
  byId("main").replaceChildren(...[app.view.node].flat());
  byId("main").scrollTop = 0;
  byId("main").setAttribute("aria-label", app.view.title);
  if (event) byId("main").focus(); // a reader tells the view, and its keys work
  app.soon();
}

const printable = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "�");

function build() {
  byId("nav").append(...NAV.map(([key, title]) => el("button", { type: "button", onclick: () => { location.hash = "#/" + key; } }, el("span", { text: title }), el("span", { class: "count" }))));
  byId("hold").addEventListener("click", hold);
  byId("theme").addEventListener("click", () => theme(true));
  byId("keys").addEventListener("click", help);
  byId("leave").addEventListener("click", () => { app.tried = false; app.client.leave(); });
  addEventListener("hashchange", route);
  addEventListener("resize", () => app.view && app.view.show && app.broker && !app.view.row && app.view.show());
  document.addEventListener("visibilitychange", () => { if (!document.hidden) app.soon(); });
  document.addEventListener("keydown", pressed);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { inks.clear(); app.soon(); });
}

function hold() {
  app.frozen = !app.frozen;
  byId("hold").setAttribute("aria-pressed", String(app.frozen));
  showState(app.client.state, byId("says").textContent);
  if (app.frozen) clearTimeout(app.timer);
  else app.soon();
}

/* Auto, light, dark. The choice is all that this page stores. */
function theme(next) {
  const choices = ["auto", "light", "dark"];
  let choice = "auto";
  try {
    choice = localStorage.getItem("stompcodec-theme") || "auto";
  } catch { /* storage is off */ }
  if (!choices.includes(choice)) choice = "auto";
  if (next) choice = choices[(choices.indexOf(document.documentElement.dataset.theme || choice) + 1) % choices.length];
  document.documentElement.dataset.theme = choice;
  setText(byId("theme"), { auto: "Auto", light: "Light", dark: "Dark" }[choice]);
  byId("theme").setAttribute("aria-label", "Colours: " + choice);
  try {
    if (next) localStorage.setItem("stompcodec-theme", choice);
  } catch { /* storage is off */ }
  inks.clear();
  if (next) app.soon();
}

function help() {
  if (document.querySelector("dialog")) return;
  const dialog = el("dialog", { "aria-label": "Keyboard shortcuts", id: "help" }, el("form", { method: "dialog" }, el("h2", { text: "Keyboard" }),
    el("table", { class: "pairs" }, KEYS.map(([key, text]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: key })), el("td", { text })))),
    el("div", { class: "pick" }, el("button", { type: "submit", text: "Close" }))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  const typing = event.target.closest("input, select, textarea");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  const view = app.view, grid = document.querySelector("#main [role=grid]");
  if (/^[1-8]$/.test(event.key) && view) location.hash = "#/" + NAV[Number(event.key) - 1][0];
  else if (event.key === "/" && document.querySelector("#main input[type=search]")) document.querySelector("#main input[type=search]").focus();
  else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && grid && [document.body, byId("main")].includes(event.target)) { grid.focus(); grid.dispatchEvent(new KeyboardEvent("keydown", { key: event.key })); }
  else if (event.key === "Escape" && /^#\/(destination|durable|session)\//.test(location.hash)) history.back();
  else if (event.key === "[" || event.key === "]") { const list = view && (view.turn ? view : view.browser); if (list) list.turn(event.key === "]" ? 1 : -1); }
  else if (event.key === "r" && view && view.browser) view.browser.load();
  else if (event.key === "p") hold();
  else if (event.key === "t") theme(true);
  else if (event.key === "?") help();
  else return;
  event.preventDefault();
}

build();
theme(false);
app.client = new Stomp((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/", app.settings, onState);
app.client.open();
