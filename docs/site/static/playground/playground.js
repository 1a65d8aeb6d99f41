// The playground's page. All that comes from frames becomes text by textContent: never markup, a style or an address.
"use strict";
const byId = (id) => document.getElementById(id);
const MOST = 8 * 1024 * 1024;
const EXAMPLES = {
  "a conversation":
    "CONNECT\naccept-version:1.2\nhost:example\nlogin:me\npasscode:hunter2\n\n^@\n" +
    "SUBSCRIBE\nid:0\ndestination:/queue/orders\nack:client-individual\n\n^@\n" +
    'SEND\ndestination:/queue/orders\ncontent-type:application/json\n\n{"order":7,"parts":["a","b"]}^@\n',
  "broken rules":
    "SEND\nDestination:/queue/a\ncontent-type:text\n\nhello^@\n" +
    "SEND\ndestination:/queue/a\nprice:5: EUR\nname:a\\tb\n\n^@\n" +
    "ACK\nid:7\n\nno body here^@\nNACK\nmessage-id:1\n\n^@\n",
  "a body with NUL": "MESSAGE\ndestination:/topic/a\nmessage-id:1\nsubscription:0\ncontent-length:5\n\nab^@cd^@\n\n\n",
};
let chosen = 0;
let book = { entries: [], rules: {} };
let sources = {};

function make(parent, tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = String(text);
  parent.append(node);
  return node;
}

function say(line) {
  byId("line").textContent = line ?? "";
  byId("line").hidden = !line;
}

// ---- Python ----

const waiting = new Map();
let count = 0;
const loaded = {};
loaded.promise = new Promise((resolve) => { loaded.resolve = resolve; });
/** What Python has printed. */
const printed = [];

/** A worker of this address alone would have no policy; one from a blob has that of this page. */
function launch() {
  const address = JSON.stringify(new URL("worker.js", import.meta.url).href);
  const script = `import(${address}).catch((error) => postMessage({ failed: String(error.message) }));`;
  const blob = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(blob, { type: "module" });
  worker.onerror = () => failed("");
  return worker;
}

function failed(why) {
  byId("status").textContent = "Python could not be loaded.";
  say(`Python could not be loaded. ${why}`);
}

const worker = launch();
worker.onmessage = ({ data }) => {
  if (data.ready) loaded.resolve();
  else if (data.failed !== undefined) failed(data.failed);
  else if (data.said !== undefined) printed.push(data.said);
  else {
    waiting.get(data.id)(data.answer);
    waiting.delete(data.id);
  }
};

/** Ask Python; the answer has a `line` if it cannot be given. */
async function ask(request, bytes) {
  await loaded.promise;
  count += 1;
  const id = count;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    worker.postMessage({ id, request, bytes });
  });
}

/** A function that runs `work` for its last call only, and never twice at once. */
function latest(work) {
  let busy = false, next = null;
  return async function run(...given) {
    next = given;
    if (busy) return;
    busy = true;
    while (next) {
      const now = next;
      next = null;
      await work(...now);
    }
    busy = false;
  };
}

// ---- the input ----

const options = () => ({ version: byId("version").value, lenient: byId("lenient").checked });

function forget() {
  byId("link").hidden = true;
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
}

/** Take an input, and show it. `request` says where it is from. */
const take = latest(async (request, bytes) => {
  say("");
  await loaded.promise;
  byId("status").textContent = "Reading";
  const taken = await ask(request, bytes);
  const isText = request.what === "text";
  if (!isText) {
    byId("text").value = taken.text ?? "";
    byId("file").hidden = taken.line !== undefined || taken.text !== null;
    byId("file").textContent = `${taken.name}: ${Number(taken.size).toLocaleString("en")} bytes, ${taken.form}. Typing replaces it.`;
    if (taken.version) byId("version").value = taken.version;
  } else byId("file").hidden = true;
  if (taken.line) {
    clear();
    say(taken.line);
  } else {
    await look();
    if (isText && taken.size && !taken.nuls) say("The text has no NUL, which ends a frame. Write ^@ there.");
  }
  byId("status").textContent = "Ready";
});

async function look() {
  const found = await ask({ what: "look", ...options() });
  if (found.line) {
    clear();
    say(found.line);
    return;
  }
  book = found;
  say(book.problems.join(" "));
  chosen = 0;
  drawList();
  await prepareCut();
}

function clear() {
  book = { entries: [], rules: {} };
  drawList();
  byId("slider").disabled = byId("everywhere").disabled = true;
  for (const id of ["first", "second", "around", "verdict"]) byId(id).replaceChildren();
}

async function takeFile(file) {
  forget();
  if (file.size > MOST) {
    byId("text").value = "";
    clear();
    say(`${file.name} has ${(file.size / 1048576).toFixed(1)} MB: this page takes up to 8 MB. For more: stompcodec inspect.`);
    return;
  }
  await take({ what: "file", name: file.name }, new Uint8Array(await file.arrayBuffer()));
}

// ---- what was read ----

const worst = (marks) => ["error", "warning", "note"].find((level) => marks.some((mark) => mark.severity === level)) ?? "";

function drawList() {
  const list = byId("list");
  list.replaceChildren();
  book.entries.forEach((entry, index) => {
    const row = make(list, "div", `row ${entry.fault ? "error" : worst(entry.marks)}`);
    row.setAttribute("role", "option");
    row.id = `entry-${index}`;
    row.dataset.index = String(index);
    make(row, "span", "offset", entry.at);
    make(row, "b", "", entry.command);
    make(row, "span", "destination", entry.destination);
    make(row, "span", "soft", entry.size ? `${entry.size} B` : "");
    make(row, "span", "rules", [...new Set(entry.marks.map((mark) => mark.rule))].join(" "));
  });
  const size = book.entries.length, marks = book.entries.flatMap((entry) => entry.marks);
  const levels = ["error", "warning", "note"].map((level) => {
    const many = marks.filter((mark) => mark.severity === level).length;
    return `${many} ${level}${many === 1 ? "" : "s"}`;
  });
  const left = book.left ? `, and ${book.left} more that are only counted` : "";
  byId("about").textContent = size ? `${size} ${size === 1 ? "entry" : "entries"}${left}: ${levels.join(", ")}` : "No frames.";
  choose(Math.min(chosen, size - 1));
}

function choose(index) {
  byId("frame").replaceChildren();
  if (index < 0 || index >= book.entries.length) return;
  byId(`entry-${chosen}`)?.removeAttribute("aria-selected");
  chosen = index;
  const row = byId(`entry-${index}`);
  row.setAttribute("aria-selected", "true");
  byId("list").setAttribute("aria-activedescendant", row.id);
  const top = row.offsetTop - byId("list").offsetTop;
  if (top < byId("list").scrollTop) byId("list").scrollTop = top;
  const below = top + row.offsetHeight - byId("list").clientHeight;
  if (below > byId("list").scrollTop) byId("list").scrollTop = below;
  drawFrame(book.entries[index]);
}

function drawMarks(parent, marks) {
  for (const mark of marks) {
    const box = make(parent, "div", `mark ${mark.severity}`);
    const head = make(box, "p");
    make(head, "b", "", mark.rule);
    make(head, "span", "", ` ${mark.text} `);
    make(head, "span", "soft", `(${mark.remedy})`);
    const sentence = book.rules[mark.rule];
    if (!sentence) continue;
    const rule = make(box, "p", "rule", sentence);
    if (sources[mark.rule]) make(rule, "span", "soft", ` ${sources[mark.rule]}`);
  }
}

function drawFrame(entry) {
  const pane = byId("frame");
  const end = entry.length === null ? "" : ` to ${entry.at + entry.length}`;
  const version = entry.fault ? "" : `, read as ${entry.version}`;
  make(pane, "h3", "", entry.command);
  make(pane, "p", "soft", [`from byte ${entry.at}${end}${version}`, entry.time, entry.flow].filter(Boolean).join(", "));
  if (entry.fault) {
    const on = entry.fault.on === null ? "Reading ended there." : `Reading continued at byte ${entry.fault.on}.`;
    make(pane, "p", "", `${entry.fault.what}, at byte ${entry.fault.at}. ${on}`);
  }
  const own = (part) => entry.marks.filter((mark) => mark.part === part);
  drawMarks(pane, own(null));
  const table = make(make(pane, "div", "scroll"), "table", "headers");
  entry.parts.forEach((part, index) => {
    const marks = own(index);
    if (!["header", "skipped", "body"].includes(part.kind)) {
      drawMarks(pane, marks);
      return;
    }
    const row = make(table, "tr");
    make(row, "td", "offset", entry.at + part.start);
    make(row, "th", "", part.kind === "skipped" ? "(ignored)" : part.name);
    const cell = make(row, "td");
    if (part.kind === "header") make(cell, "span", "value", part.meant);
    if (part.kind === "skipped") make(cell, "span", "value", part.written);
    if (part.kind === "body") make(cell, "span", "soft", `${entry.size} bytes`);
    if (part.kind === "header" && part.written) make(cell, "code", "written", `written: ${part.written}`);
    if (!marks.length) return;
    const below = make(make(table, "tr", "below"), "td");
    below.colSpan = 3;
    drawMarks(below, marks);
  });
  if (entry.more) make(pane, "p", "soft", `${entry.more} more headers`);
  if (entry.body) {
    make(pane, "h3", "", `Body as ${entry.body.form}`);
    for (const note of entry.body.notes) make(pane, "p", "soft", note);
    const body = make(pane, "pre", "body", entry.body.text);
    body.tabIndex = 0;
  }
  const bytes = make(pane, "details");
  make(bytes, "summary", "", "Bytes");
  bytes.open = Boolean(entry.fault) || byId("frame").dataset.open === "yes";
  bytes.addEventListener("toggle", () => { byId("frame").dataset.open = bytes.open ? "yes" : ""; });
  make(bytes, "pre", "octets", hexOf(entry)).tabIndex = 0;
}

/** The bytes of an entry as hexdump -C has them. */
function hexOf(entry) {
  const lines = [];
  let end = 0;
  for (const [start, packed] of entry.runs) {
    if (start > end) lines.push(`(${start - end} bytes left out)`);
    const data = atob(packed);
    for (let at = 0; at < data.length; at += 16) {
      const row = [...data.slice(at, at + 16)].map((letter) => letter.charCodeAt(0));
      const hex = row.map((octet) => octet.toString(16).padStart(2, "0"));
      const text = row.map((octet) => (octet >= 32 && octet < 127 ? String.fromCharCode(octet) : ".")).join("");
      const left = `${hex.slice(0, 8).join(" ")}  ${hex.slice(8).join(" ")}`.padEnd(48);
      lines.push(`${(entry.at + start + at).toString(16).padStart(8, "0")}  ${left}  |${text}|`);
    }
    end = start + data.length;
  }
  if (entry.length > end) lines.push(`(${entry.length - end} bytes left out)`);
  return lines.join("\n");
}

// ---- cut, escapes, link ----

async function prepareCut() {
  const size = (await ask({ what: "size" })).size;
  byId("slider").max = String(size);
  byId("slider").value = String(Math.floor(size / 2));
  byId("verdict").textContent = "";
  await cut();
}

const cut = latest(async () => {
  const at = Number(byId("slider").value);
  const answer = await ask({ what: "cut", at });
  byId("slider").disabled = byId("everywhere").disabled = Boolean(answer.line);
  for (const id of ["first", "second"]) {
    byId(id).replaceChildren();
    for (const event of answer[id] ?? []) make(byId(id), "li", "", event);
    if (!answer.line && !answer[id].length) make(byId(id), "li", "soft", "no event");
  }
  const around = byId("around");
  around.replaceChildren();
  if (answer.line) make(around, "span", "soft", answer.line);
  else {
    make(around, "span", "", answer.before);
    make(around, "b", "", "✂");
    make(around, "span", "", answer.after);
  }
  byId("slider").setAttribute("aria-valuetext", `${at} bytes in the first read`);
  byId("first-title").textContent = `First read, ${at} bytes`;
  byId("second-title").textContent = `Second read, ${Number(byId("slider").max) - at} bytes`;
  if (!answer.line) byId("verdict").textContent = answer.same ? "The same events as in one read." : "Other events than in one read.";
});

async function everywhere() {
  byId("verdict").textContent = "Cutting";
  const answer = await ask({ what: "everywhere" });
  byId("verdict").textContent = answer.line
    ?? (answer.different.length
      ? `Other events when cut at ${answer.different.join(", ")}.`
      : `All ${answer.cuts} cuts give the same ${answer.events} events.`);
}

const escapes = latest(async () => {
  const answer = await ask({ what: "escapes", value: byId("value").value });
  const rest = byId("escapes").tBodies[0];
  rest.replaceChildren();
  for (const cells of answer.rows ?? []) {
    const row = make(rest, "tr");
    for (const cell of cells) make(row, "td", "value", cell);
  }
});

async function share() {
  const answer = await ask({ what: "share" });
  if (answer.line) return say(answer.line);
  history.replaceState(null, "", `#${answer.fragment}`);
  byId("address").value = location.href;
  byId("link").hidden = false;
  byId("address").select();
}

// ---- events ----

function opened() {
  const fragment = location.hash.slice(1);
  if (fragment) return take({ what: "fragment", fragment });
  return undefined;
}

async function begin() {
  await loaded.promise;
  escapes();
  if (opened() === undefined) take({ what: "text", text: byId("text").value });
}

const typed = () => {
  forget();
  take({ what: "text", text: byId("text").value });
};
let pause = 0;
byId("text").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(typed, 150);
});
byId("example").addEventListener("change", () => {
  byId("text").value = EXAMPLES[byId("example").value];
  typed();
});
for (const id of ["version", "lenient"]) byId(id).addEventListener("change", () => { forget(); look(); });
byId("open").addEventListener("click", () => byId("chosen").click());
byId("chosen").addEventListener("change", () => {
  if (byId("chosen").files[0]) takeFile(byId("chosen").files[0]);
  byId("chosen").value = "";
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const file = event.dataTransfer.files[0];
  const text = event.dataTransfer.getData("text/plain");
  if (file) takeFile(file);
  else if (text) {
    byId("text").value = text;
    typed();
  }
});
byId("list").addEventListener("click", (event) => {
  const row = event.target.closest("[data-index]");
  if (row) choose(Number(row.dataset.index));
});
byId("list").addEventListener("keydown", (event) => {
  const last = book.entries.length - 1;
  const next = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  choose(Math.max(0, Math.min(last, next)));
});
byId("slider").addEventListener("input", () => cut());
byId("everywhere").addEventListener("click", everywhere);
byId("value").addEventListener("input", () => escapes());
byId("share").addEventListener("click", share);
window.addEventListener("hashchange", opened);

for (const name of Object.keys(EXAMPLES)) make(byId("example"), "option", "", name);
byId("text").value = Object.values(EXAMPLES)[0];
byId("status").textContent = "Loading Python, about 8 MB";
window.printed = printed;
fetch("rules.json").then((answer) => answer.json()).then((found) => { sources = found; }, () => {});
begin();
