"use strict";

/* Elements and texts. What a client has written reaches the page as text only. */

function el(name, settings = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const num = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));

function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? value.toFixed(1) : num(value);
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  for (; value >= 1024 && unit < 4; unit += 1) value /= 1024;
  return (unit && value < 100 ? value.toFixed(1) : num(value)) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "0 s";
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " days";
}

function millis(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const value = seconds * 1000;
  return value >= 100 ? num(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

const count = (value, one, more = one + "s") => num(value) + " " + (value === 1 ? one : more);
const clock = (seconds) => new Date(seconds * 1000).toLocaleString("sv-SE");

function toast(text, bad = false) {
  const node = el("p", { class: bad ? "toast bad" : "toast", text });
  byId("toasts").append(node);
  setTimeout(() => node.remove(), bad ? 12000 : 6000);
}

function tile(title) {
  const value = el("dd");
  return { node: el("div", { class: "tile" }, el("dt", { text: title }), value), value };
}

/* A row of numbers with titles: pairs of a title and a function of the data. */
function tiles(pairs) {
  const made = pairs.map(([title, text]) => ({ ...tile(title), text }));
  return {
    node: el("dl", { class: "tiles" }, made.map((each) => each.node)),
    show(data) {
      for (const each of made) {
        const found = each.text(data);
        const [text, tone] = Array.isArray(found) ? found : [found, ""];
        setText(each.value, text);
        each.value.className = tone;
      }
    },
  };
}

function whyText(error) {
  if (!(error instanceof Refusal)) return String(error.message || error);
  if (error.forbidden) return "You may not ask for “" + error.ask + "”: " + error.message.replace(/^not allowed: /, "") + ".";
  const text = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  return (error.field ? error.ask + ", " + error.field + ": " + error.message : text) + (/[.!?]$/.test(text) ? "" : ".");
}

const troubleCard = () => el("p", { class: "card trouble", role: "alert", hidden: true });

/* Show a text, or hide its place if there is none. */
function tell(place, text) {
  setText(place, text);
  place.hidden = !text;
}

/* ---- bodies ---- */

/* Indent JSON without changing a token: JSON.parse would round long numbers. Return null if it is none. */
function prettyJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const pieces = [];
  let depth = 0;
  const line = () => pieces.push("\n" + "  ".repeat(Math.min(depth, 60)));
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    if (/^[{[]\s*[}\]]$/.test(token)) pieces.push(token[0] + token.at(-1));
    else if (token === "{" || token === "[") { pieces.push(token); depth += 1; line(); }
    else if (token === "}" || token === "]") { depth -= 1; line(); pieces.push(token); }
    else if (token === ",") { pieces.push(token); line(); }
    else pieces.push(token === ":" ? ": " : token);
  }
  return pieces.join("");
}

/* Indent XML tag by tag. Nothing is parsed, so that no entity is expanded. */
function prettyXml(text) {
  if (!/^\s*<[?!A-Za-z_]/.test(text) || !/>\s*$/.test(text)) return null;
  const tokens = text.match(/<!--[\s\S]*?-->|<!\[CDATA\[[\s\S]*?\]\]>|<[^>]*>|[^<]+/g) || [];
  if (tokens.join("") !== text) return null;
  const lines = [];
  let depth = 0, open = false; // the last line is a start tag whose content may follow on it
  for (const token of tokens) {
    const pad = () => "  ".repeat(Math.min(Math.max(depth, 0), 60));
    if (token.startsWith("</")) {
      depth -= 1;
      if (open) lines[lines.length - 1] += token;
      else lines.push(pad() + token);
      open = false;
    } else if (/^<[^?!]/.test(token) && !token.endsWith("/>")) {
      lines.push(pad() + token);
      depth += 1;
      open = true;
    } else if (token.startsWith("<")) {
      lines.push(pad() + token);
      open = false;
    } else if (token.trim()) {
      if (open) lines[lines.length - 1] += token.trim();
      else lines.push(pad() + token.trim());
    }
  }
  return lines.join("\n");
}

function bytesOf(row) {
  if (row.encoding !== "base64") return new TextEncoder().encode(row.body);
  return Uint8Array.from(atob(row.body), (letter) => letter.charCodeAt(0));
}

function hexLines(octets) {
  const lines = [];
  for (let at = 0; at < octets.length; at += 16) {
    const part = octets.subarray(at, at + 16);
    const hex = Array.from(part, (octet, place) => (place === 8 ? " " : "") + octet.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(part, (octet) => (octet >= 32 && octet < 127 ? String.fromCharCode(octet) : ".")).join("");
    lines.push(at.toString(16).padStart(8, "0") + "  " + hex.padEnd(49) + "  " + text);
  }
  return lines.join("\n");
}
