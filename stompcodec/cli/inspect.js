"use strict";
// Everything from the file becomes text by textContent: never markup, never a style, never an address.
(() => {
  const byId = (id) => document.getElementById(id);
  const book = JSON.parse(byId("book").textContent);
  const entries = book.entries;
  const list = byId("list"), parts = byId("parts"), octets = byId("octets"), body = byId("body");
  const rows = [];
  let chosen = -1;

  function make(parent, tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined && text !== null) node.textContent = String(text);
    parent.append(node);
    return node;
  }

  function worst(marks) {
    return ["error", "warning", "note"].find((level) => marks.some((mark) => mark.severity === level)) || "";
  }

  // A rule and what it says.
  function ruled(rule) {
    return book.rules[rule] ? rule + " " + book.rules[rule] : rule;
  }

  // The list

  const columns = [
    ["No.", "num", (entry) => entry.n],
    ["Offset", "num", (entry) => entry.at],
    ["Time (UTC)", "time", (entry) => entry.time],
    ["From and to", "flow", (entry) => entry.flow],
    ["Command", "command", (entry) => entry.command],
    ["Destination", "wide", (entry) => entry.destination],
    ["Body", "num", (entry) => (entry.size === null ? "" : entry.size)],
    ["Lint", "lint", (entry) => [...new Set(entry.marks.map((mark) => mark.rule))].map(ruled).join("; ")],
  ].filter(([, , value], index) => (index !== 2 && index !== 3) || entries.some(value));

  function drawList() {
    const table = make(list, "table");
    const head = make(make(table, "thead"), "tr");
    for (const [title, className] of columns) make(head, "th", className, title);
    const rest = make(table, "tbody");
    entries.forEach((entry, index) => {
      const row = make(rest, "tr", entry.fault ? "fault" : worst(entry.marks));
      row.dataset.index = String(index);
      for (const [, className, value] of columns) {
        const cell = make(row, "td", className, value(entry));
        if (className === "lint" || className === "wide") cell.title = cell.textContent;
      }
      rows.push(row);
    });
  }

  function choose(index) {
    if (index < 0 || index >= entries.length) return;
    if (chosen >= 0) rows[chosen].removeAttribute("aria-selected");
    chosen = index;
    rows[index].setAttribute("aria-selected", "true");
    rows[index].scrollIntoView({ block: "nearest" });
    drawParts(entries[index]);
    drawOctets(entries[index]);
    drawBody(entries[index]);
  }

  function move(step) {
    let index = chosen + step;
    while (index >= 0 && index < rows.length && rows[index].hidden) index += step;
    choose(index);
  }

  // Headers

  function drawMarks(parent, marks) {
    for (const mark of marks) {
      const line = make(parent, "p", "mark " + mark.severity);
      make(line, "b", "", mark.rule);
      make(line, "span", "", " " + mark.text);
      make(line, "small", "", " (" + mark.remedy + ")");
      if (book.rules[mark.rule]) make(line, "small", "rule", "Rule: " + book.rules[mark.rule]);
    }
  }

  function drawParts(entry) {
    parts.replaceChildren();
    make(parts, "h2", "", entry.command + (entry.size === null ? "" : ", read as " + entry.version));
    const where = "octet " + entry.at + (entry.length === null ? "" : " to " + (entry.at + entry.length));
    make(parts, "p", "soft", [where, entry.time, entry.flow].filter(Boolean).join(", "));
    if (entry.fault) {
      const on = entry.fault.on === null ? "" : "; reading continued at octet " + entry.fault.on;
      const text = "Octet " + entry.fault.at + ": " + entry.fault.what + " (" + entry.fault.remedy + on + ")";
      make(parts, "p", "mark error", text);
    }
    drawMarks(parts, entry.marks.filter((mark) => mark.part === null));
    const table = make(parts, "table");
    entry.parts.forEach((part, index) => {
      const marks = entry.marks.filter((mark) => mark.part === index);
      if (part.kind !== "header" && part.kind !== "skipped" && part.kind !== "body" && !marks.length) return;
      const row = make(table, "tr", part.kind);
      row.dataset.part = String(index);
      row.tabIndex = 0;
      make(row, "th", "", part.kind === "skipped" ? "(ignored)" : part.name);
      const cell = make(row, "td");
      if (part.kind === "skipped") make(cell, "span", "value", part.written);
      if (part.kind === "body") make(cell, "span", "soft", entry.size + " bytes");
      if (part.kind === "header") make(cell, "span", "value", part.meant);
      if (part.kind === "header" && !part.plain) make(cell, "code", "written", part.written);
      drawMarks(cell, marks);
    });
    if (entry.more) make(parts, "p", "soft", entry.more + " more headers");
  }

  // Octets

  const ROW = 16;
  const hex = (number, digits) => number.toString(16).padStart(digits, "0");

  function partAt(entry, at, from) {
    // Parts are in order; `from` is where the last search ended.
    let index = from;
    while (index < entry.parts.length && entry.parts[index].end <= at) index += 1;
    return index;
  }

  function drawRun(entry, start, data) {
    let part = 0;
    for (let at = 0; at < data.length; at += ROW) {
      const line = make(octets, "div", "row");
      make(line, "span", "offset", hex(entry.at + start + at, 8));
      const left = make(line, "span", "hex"), right = make(line, "span", "text");
      let hexText = "", text = "", current = -2;
      const flush = () => {
        if (!text) return;
        for (const [parent, value] of [[left, hexText], [right, text]]) {
          const span = make(parent, "span", current < 0 ? "eol" : "in " + entry.parts[current].kind + (current % 2), value);
          if (current >= 0) span.dataset.part = String(current);
        }
        hexText = text = "";
      };
      for (let column = 0; column < ROW; column += 1) {
        if (at + column >= data.length) break;
        const where = start + at + column, octet = data.charCodeAt(at + column);
        part = partAt(entry, where, part);
        const inside = part < entry.parts.length && entry.parts[part].start <= where ? part : -1;
        if (inside !== current) flush();
        current = inside;
        hexText += (column === ROW / 2 ? " " : "") + hex(octet, 2) + " ";
        text += octet >= 32 && octet < 127 ? String.fromCharCode(octet) : ".";
      }
      flush();
    }
  }

  function drawOctets(entry) {
    octets.replaceChildren();
    octets.scrollTop = 0;
    let end = 0;
    for (const [start, data] of entry.runs) {
      if (start > end) make(octets, "p", "soft", start - end + " octets left out");
      const text = atob(data);
      drawRun(entry, start, text);
      end = start + text.length;
    }
    if (entry.length > end) make(octets, "p", "soft", entry.length - end + " octets left out");
  }

  function light(part, scroll) {
    for (const node of document.querySelectorAll(".lit")) node.classList.remove("lit");
    for (const pane of [parts, octets]) {
      const nodes = pane.querySelectorAll('[data-part="' + Number(part) + '"]');
      for (const node of nodes) node.classList.add("lit");
      if (nodes.length && pane !== scroll) nodes[0].scrollIntoView({ block: "nearest" });
    }
  }

  function drawBody(entry) {
    body.replaceChildren();
    body.scrollTop = 0;
    if (!entry.body) {
      make(body, "p", "soft", entry.fault ? "No frame could be read here." : "No body.");
      return;
    }
    make(body, "h2", "", "Body: " + entry.body.form);
    for (const note of entry.body.notes) make(body, "p", "soft", note);
    make(body, "pre", entry.body.form, entry.body.text);
  }

  // The filter, keys, clicks

  function textOf(entry) {
    const headers = entry.parts.filter((part) => part.kind === "header").map((part) => part.name + ":" + part.meant);
    return [entry.command, entry.destination, ...headers].join("\n").toLowerCase();
  }

  function filter() {
    const wanted = byId("filter").value.toLowerCase();
    let shown = 0;
    entries.forEach((entry, index) => {
      rows[index].hidden = wanted !== "" && !textOf(entry).includes(wanted);
      shown += rows[index].hidden ? 0 : 1;
    });
    about(shown);
    if (chosen >= 0 && rows[chosen].hidden) choose(rows.findIndex((row) => !row.hidden));
  }

  function about(shown) {
    const of = shown === entries.length ? "" : shown + " of ";
    const left = book.left ? ", " + book.left + " left out" : "";
    byId("about").textContent = of + entries.length + (entries.length === 1 ? " entry" : " entries") + left;
  }

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const typing = event.target === byId("filter");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest && event.target.closest("#parts [data-part]");
    if (step) move(step);
    else if (event.key === "/" && !typing) byId("filter").select();
    else if (event.key === "Escape" && typing) list.focus();
    else if (event.key === "Enter" && typing) list.focus();
    else if (event.key === "Enter" && row) light(row.dataset.part, parts);
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[data-index]");
    if (row) choose(Number(row.dataset.index));
  });
  for (const pane of [parts, octets]) {
    pane.addEventListener("click", (event) => {
      const node = event.target.closest("[data-part]");
      if (node) light(node.dataset.part, pane);
    });
  }
  byId("filter").addEventListener("input", filter);

  drawList();
  about(entries.length);
  choose(book.first);
})();
