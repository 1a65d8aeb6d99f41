"use strict";

/* Orders. Each is confirmed in a dialog that names what will happen, and to how many. */

/* Show a dialog. `fields` are inputs by name; `typed` is what has to be typed first; `run` gives the order. */
function confirmed({ title, says, fields = [], typed, act, danger = false, run, done }) {
  const before = document.activeElement;
  const inputs = new Map(fields.map((field) => [field.name, field.options
    ? el("select", { name: field.name }, field.options.map((each) => el("option", { value: each, text: each, selected: each === field.value })))
    : el("input", { name: field.name, required: field.required, placeholder: field.hint || "", autocomplete: "off", spellcheck: "false", inputmode: field.whole ? "numeric" : null, pattern: field.whole ? "[1-9][0-9]*" : null, title: field.whole ? "a whole number" : null })]));
  const type = typed && el("input", { autocomplete: "off", spellcheck: "false", "aria-label": "Type " + typed + " to confirm" });
  const trouble = el("p", { class: "bad", role: "alert", hidden: true });
  const yes = el("button", { type: "submit", class: danger ? "main danger" : "main", text: act, disabled: Boolean(typed) });
  const no = el("button", { type: "button", text: "Cancel", onclick: () => dialog.close() });
  const form = el("form", { method: "dialog" },
    el("h2", { text: title, id: "asks" }), says.map((text) => el("p", { text })),
    fields.map((field) => el("label", { text: field.title }, inputs.get(field.name))),
    typed ? el("label", {}, el("span", {}, "Type ", el("code", { text: typed }), " to confirm"), type) : null,
    trouble, el("div", { class: "pick" }, no, yes));
  const dialog = el("dialog", { "aria-labelledby": "asks", id: "ask" }, form);
  if (type) type.addEventListener("input", () => { yes.disabled = type.value !== typed; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (yes.disabled) return;
    const values = {};
    for (const field of fields) {
      const value = inputs.get(field.name).value;
      if (value.trim()) values[field.name] = field.whole ? Number(value) : value;
    }
    yes.disabled = true;
    setText(yes, "Working…");
    trouble.hidden = true;
    try {
      const text = await run(values);
      dialog.close();
      toast(text);
      if (done) done();
      app.soon();
    } catch (error) {
      setText(yes, act);
      yes.disabled = false;
      tell(trouble, whyText(error));
    }
  });
  dialog.addEventListener("close", () => { dialog.remove(); if (before && before.isConnected) before.focus(); });
  document.body.append(dialog);
  dialog.showModal();
  (type || [...inputs.values()][0] || no).focus();
}

const ORDER_SECONDS = 600;
const give = async (name, fields) => (await app.client.ask(name, fields, ORDER_SECONDS)).result;
const messages = (value) => count(value, "message");

const SOME = [
  { name: "selector", title: "Only messages that match (optional)", hint: "region = 'north' AND JMSPriority > 4" },
  { name: "limit", title: "At most so many (optional)", whole: true },
];

/* What has to be typed for an order that cannot be undone: the name, or the order where a name is hard to type. */
const typedFor = (name, order) => (/^[\x21-\x7e]{1,60}$/.test(name) ? name : order);

const orders = {
  purge(row, name) {
    confirmed({
      title: "Purge " + name + "?", danger: true, act: "Purge", typed: typedFor(name, "purge"), fields: SOME,
      says: ["This removes the " + count(row.ready, "ready message") + " for ever." +
        (row.unacknowledged + row.scheduled ? " " + num(row.unacknowledged) + " with consumers and " + num(row.scheduled) + " scheduled ones stay." : "")],
      run: async (values) => messages((await give("purge", { destination: name, ...values })).messages) + " removed from " + name + ".",
    });
  },

  move(row, name) {
    confirmed({
      title: "Move messages of " + name, act: "Move",
      says: ["This moves up to " + count(row.ready, "ready message") + ", oldest first. Each gets a new message-id."],
      fields: [{ name: "to", title: "To the queue or topic", required: true, hint: "/queue/…" }, ...SOME],
      run: async (values) => moved(await give("move", { destination: name, ...values }), " moved to " + values.to),
    });
  },

  again(row, name) {
    confirmed({
      title: "Send dead letters again?", act: "Send again", fields: SOME,
      says: ["This sends up to " + count(row.ready, "ready message") + " of " + name + " back, each to the queue it came from. " +
        "The headers of a dead letter are removed."],
      run: async (values) => moved(await give("move", { destination: name, ...values }), " sent again"),
    });
  },

  remove(row, name, what) {
    confirmed({
      title: "Delete " + name + "?", danger: true, act: "Delete", typed: typedFor(name, "delete"),
      says: ["This deletes the " + what + " and its " + messages(row.ready + row.unacknowledged + row.scheduled) +
        " for ever. One with consumers is not deleted."],
      run: async () => {
        const gone = (await give("delete", { destination: name })).messages;
        return name + " is deleted, with " + messages(gone) + ".";
      },
      done: () => { location.hash = what === "durable subscription" ? "#/durables" : "#/destinations"; },
    });
  },

  pause(row, name) {
    const order = row.paused ? "resume" : "pause";
    confirmed({
      title: (row.paused ? "Resume " : "Pause ") + name + "?", act: row.paused ? "Resume" : "Pause",
      says: [row.paused
        ? "Its " + count(row.ready, "ready message") + " may go to " + count(row.consumers, "consumer") + " again."
        : count(row.consumers, "consumer") + " will get no more of its messages until it is resumed, or the broker restarts. Senders go on."],
      run: async () => {
        const { changed } = await give(order, { destination: name });
        return changed ? name + (row.paused ? " is resumed." : " is paused.") : "Nothing had to be changed.";
      },
    });
  },

  close(row) {
    confirmed({
      title: "Close the session " + row.session + "?", danger: true, act: "Close the session",
      says: ["The client at " + row.peer + (row.user ? ", user " + row.user + "," : "") + " gets an ERROR and is disconnected. Its " +
        count(row.subscriptions, "subscription") + " end, and " + count(row.unacknowledged, "unacknowledged message") +
        " return to the queues. It may connect again."],
      run: async () => { await give("close", { session: row.session }); return "The session " + row.session + " is closed."; },
      done: () => { location.hash = "#/sessions"; },
    });
  },

  level(now) {
    confirmed({
      title: "Level of the log", act: "Set the level",
      says: ["It is " + now + " now. The new level holds until the broker restarts. “debug” may write a lot."],
      fields: [{ name: "level", title: "Level", options: ["debug", "info", "warning", "error"], value: now }],
      run: async ({ level }) => {
        const result = await give("log-level", { level });
        return "The level of the log is " + result.level + "; it was " + result.before + ".";
      },
    });
  },

  removeOne(name, message, done) {
    confirmed({
      title: "Delete this message?", danger: true, act: "Delete 1 message", done,
      says: ["This removes the message " + message.message_id + " from " + name + " for ever."],
      run: async () => messages((await give("purge", { destination: name, message_id: message.message_id })).messages) + " deleted.",
    });
  },

  moveOne(name, message, done) {
    confirmed({
      title: "Move this message", act: "Move 1 message", done,
      says: ["This moves the message " + message.message_id + " of " + name + ". It gets a new message-id."],
      fields: [{ name: "to", title: "To the queue or topic", required: true, hint: "/queue/…" }],
      run: async ({ to }) => moved(await give("move", { destination: name, message_id: message.message_id, to }), " moved to " + to),
    });
  },

  againOne(name, message, from, done) {
    confirmed({
      title: "Send this message again?", act: "Send 1 message again", done,
      says: ["This sends the message " + message.message_id + " back to " + from + ", without the headers of a dead letter."],
      run: async () => moved(await give("move", { destination: name, message_id: message.message_id }), " sent again"),
    });
  },
};

function moved(result, how) {
  return messages(result.messages) + how + "." + (result.skipped ? " " + count(result.skipped, "was", "were") +
    " left: the queue that they came from is unknown, or takes no more." : "") + (result.stopped ? " It ended early: " + result.stopped + "." : "");
}
