"use strict";
// Everything from the stream becomes text by textContent: never markup, never a style, never an address.
(() => {
  const MOST = 2000, WAIT = 400;
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), detail = byId("detail"), hold = byId("hold"), filter = byId("filter");
  const entries = [], rows = [];
  let next = 0, held = false, chosen = null, lost = 0, trouble = "", about = {};

  // The token stays out of the address bar, the history and what is sent with links.
  let token = location.hash.slice(1);
  try {
    if (token) sessionStorage.setItem("token", token);
    else token = sessionStorage.getItem("token") || "";
  } catch (error) { /* without storage, a reload needs the printed address again */ }
  if (location.hash) history.replaceState(null, "", location.pathname);

  function make(parent, tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined && text !== null) node.textContent = String(text);
    parent.append(node);
    return node;
  }

  const table = make(list, "table");
  const head = make(make(table, "thead"), "tr");
  for (const title of ["Time", "Conn.", "From", "Command", "Destination", "Body", "Lint and faults"]) make(head, "th", "", title);
  const rest = make(table, "tbody");

  function worst(entry) {
    return ["error", "warning", "note"].find((level) => entry.lint.some((each) => each.severity === level)) || "";
  }

  function textOf(entry) {
    const headers = (entry.headers || []).map(([name, value]) => name + ":" + value);
    return [entry.kind, entry.command, entry.text, ...headers, ...entry.faults, ...entry.lint.map((each) => each.rule)]
      .join("\n").toLowerCase();
  }

  function fits(entry) {
    const wanted = filter.value.toLowerCase();
    return wanted === "" || textOf(entry).includes(wanted);
  }

  function add(entry) {
    const row = make(rest, "tr", [entry.kind, worst(entry)].join(" ").trim());
    make(row, "td", "time", entry.time);
    make(row, "td", "num", entry.connection || "");
    make(row, "td", "side " + entry.from, entry.from === "client" ? "client →" : entry.from === "broker" ? "← broker" : "");
    if (entry.command === undefined) {
      const cell = make(row, "td", "event", entry.text);
      cell.colSpan = 3;
    } else {
      make(row, "td", "command", entry.command);
      make(row, "td", "wide", entry.destination).title = entry.destination;
      make(row, "td", "num", entry.size);
    }
    const said = [...entry.faults.map((fault) => "fault: " + fault), ...new Set(entry.lint.map((each) => each.rule))];
    make(row, "td", "lint", said.join(", "));
    row.hidden = !fits(entry);
    row.addEventListener("click", () => choose(entry));
    entries.push(entry);
    rows.push(row);
    if (rows.length > MOST) {
      entries.shift();
      rows.shift().remove();
    }
  }

  function choose(entry) {
    const before = entries.indexOf(chosen), now = entries.indexOf(entry);
    if (before >= 0) rows[before].removeAttribute("aria-selected");
    if (now < 0) return;
    chosen = entry;
    rows[now].setAttribute("aria-selected", "true");
    rows[now].scrollIntoView({ block: "nearest" });
    detail.textContent = "";
    make(detail, "h2", "", entry.command === undefined ? entry.text : entry.command + " " + entry.destination);
    make(detail, "p", "soft", [entry.time, entry.connection ? "connection " + entry.connection : "", entry.from ? "from the " + entry.from : ""].filter(Boolean).join(", "));
    for (const fault of entry.faults) make(detail, "p", "fault", "fault: " + fault);
    for (const each of entry.lint) {
      make(detail, "p", "mark " + each.severity, each.severity + " " + each.rule + ": " + each.text + " (" + each.remedy + ")");
      if (each.title) make(detail, "p", "soft", each.title);
    }
    if (entry.headers) {
      const part = make(make(detail, "table"), "tbody");
      for (const [name, value] of entry.headers) {
        const row = make(part, "tr");
        make(row, "th", "", name);
        make(row, "td", "value", value);
      }
      if (entry.more) make(detail, "p", "soft", entry.more + " more headers");
    }
    for (const note of entry.notes || []) make(detail, "p", "soft", "(" + note + ")");
    if (entry.body) make(detail, "pre", entry.form || "binary", entry.body);
  }

  function move(step) {
    let at = entries.indexOf(chosen);
    do at += step; while (at >= 0 && at < rows.length && rows[at].hidden);
    if (at >= 0 && at < rows.length) choose(entries[at]);
  }

  function describe() {
    const parts = [];
    if (about.connections !== undefined) {
      parts.push(about.connections + " connections", about.frames.client + " frames from clients", about.frames.broker + " from the broker");
    }
    if (about.not_shown) parts.push(about.not_shown + " not shown");
    if (lost) parts.push(lost + " older ones left out");
    if (trouble) parts.push(trouble);
    byId("about").textContent = parts.join(", ");
    byId("about").className = trouble ? "trouble" : "";
  }

  async function ask() {
    const answer = await fetch("/entries?after=" + next, { headers: { Authorization: "Bearer " + token }, cache: "no-store" });
    if (!answer.ok) {
      trouble = (await answer.text()).trim();
      describe();
      return answer.status !== 401;
    }
    const data = await answer.json();
    trouble = "";
    about = data.about;
    lost += data.lost;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (const entry of data.entries) add(entry);
    next = data.next;
    if (atEnd && data.entries.length) list.scrollTop = list.scrollHeight;
    describe();
    return true;
  }

  async function run() {
    for (;;) {
      try {
        if (!held && !(await ask())) return;
      } catch (error) {
        trouble = "the proxy has ended, or cannot be reached";
        describe();
      }
      await new Promise((done) => setTimeout(done, WAIT));
    }
  }

  hold.addEventListener("click", () => {
    held = !held;
    hold.setAttribute("aria-pressed", String(held));
    hold.textContent = held ? "Go on" : "Pause";
  });
  filter.addEventListener("input", () => entries.forEach((entry, index) => { rows[index].hidden = !fits(entry); }));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const typing = event.target === filter;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !typing) move(step);
    else if (event.key === "/" && !typing) filter.select();
    else if ((event.key === "Escape" || event.key === "Enter") && typing) list.focus();
    else return;
    event.preventDefault();
  });
  run();
})();
