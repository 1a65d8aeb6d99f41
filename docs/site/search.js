// The search of the site: MiniSearch, which stands in front of this file, behind the protocol of the theme's dialog.
//
// The theme's own search wants every word of a query in one section. People type symptoms, as whole sentences; so here
// each word counts by how rare it is, a section needs only some of them, and words are compared by their stems.
"use strict";

/** Words that say nothing about a section. */
const EMPTY = new Set(
  `a about after all an and any are as at be because been before but by can could did do does doesn for from get gets
  got had has have he her his how i if in into is isn it its just like me my no nor not of off on or our out over own
  per she should so some such t than that the their them then there these they this those through to too under until
  up us very was we were what when where which while who why will with without would you your`.split(/\s+/),
);

/** The stem of an English word: without its commonest endings. Not exact, but the same for texts and queries. */
function stem(word) {
  if (word.length < 4 || /\d/.test(word)) return word;
  let it = word;
  if (it.endsWith("ies") && it.length > 4) it = `${it.slice(0, -3)}y`;
  else if (/(ss|x|ch|sh)es$/.test(it)) it = it.slice(0, -2);
  else if (/[^su]s$/.test(it)) it = it.slice(0, -1);
  const shorter = it.replace(/(ation|ing|ed|er|ly|ment)$/, "");
  if (shorter !== it && shorter.length > 2 && /[aeiouy]/.test(shorter)) it = shorter.replace(/([bdgklmnprt])\1$/, "$1");
  return it.length > 3 ? it.replace(/e$/, "").replace(/([^aeiou])y$/, "$1i") : it;
}

/**
 * The words of a text; one of several parts also as its parts, and joined: heart-beat, heart, beat, heartbeat;
 * ConnectionRefusedError, connection, refused, error.
 */
function words(text) {
  const found = [];
  for (const word of text.match(/[\p{L}\p{N}]+(?:['_.-][\p{L}\p{N}]+)*/gu) ?? []) {
    const parts = word.split(/['_.-]|(?<=\p{Ll})(?=\p{Lu})/u);
    found.push(...parts);
    if (parts.length > 1) found.push(parts.join(""));
  }
  return found;
}

/** The term of a word, or null if it says nothing. */
function term(word) {
  const lower = word.toLowerCase();
  return EMPTY.has(lower) || lower.length < 2 ? null : stem(lower);
}

/** Text without the tags of HTML, which become spaces, so that places stay what they are. */
const plain = (text) => text.replace(/<[^>]*>/g, (tag) => " ".repeat(tag.length));

/** Where words of a set of terms are in a text. */
function places(text, terms) {
  const ranges = [];
  for (const found of plain(text).matchAll(/[\p{L}\p{N}]+/gu)) {
    if (terms.has(term(found[0]))) {
      ranges.push({ start: found.index, end: found.index + found[0].length, value: found[0].length });
    }
  }
  return ranges;
}

/** A text as it is compared: without entities of HTML, in lower case, in one line. */
const folded = (text) =>
  text
    .replace(/&(lt|gt|amp|quot|#39);/g, (_, name) => ({ lt: "<", gt: ">", amp: "&", quot: '"', "#39": "'" })[name])
    .toLowerCase()
    .replace(/\s+/g, " ")
    .trim();

/** The messages that a page quotes: their section, and the texts around each … */
function quoted({ location, text }, id) {
  if (!location.startsWith("troubleshooting/")) return [];
  return [...text.matchAll(/<code>(.*?)<\/code>/gs)].map(([, code]) => ({
    id,
    parts: folded(code).split(/\s*…\s*/).filter(Boolean),
  }));
}

const count = (text) => text.split(/\W+/).filter(Boolean).length;

/** How much of a text is a message: all of its parts, in order; or the text is within one of them. */
function shared(parts, text) {
  const fixed = parts.join(" ");
  let end = 0;
  for (const part of parts) {
    const at = end < 0 ? -1 : text.indexOf(part, end);
    end = at < 0 ? -1 : at + part.length;
  }
  if (end > 0 && (fixed === text || count(fixed) > (fixed.includes(":") ? 1 : 2))) return fixed.length;
  return count(text) > 2 && parts.some((part) => part.includes(text)) ? text.length - 0.5 : 0;
}

/** The section of the message that somebody has pasted; undefined if there is none. */
function pasted(input) {
  let [best, found] = [0, undefined];
  for (const { id, parts } of messages) {
    const length = shared(parts, folded(input));
    if (length > best) [best, found] = [length, id];
  }
  return found;
}

let items = [];
let messages = [];
let listed = 0; // the first section that lists messages without a row of their own
let index = null;
let last = { input: "", results: [] };

function start(data) {
  items = data.items;
  messages = items.flatMap(quoted);
  listed = items.findIndex(({ location }) => location === "troubleshooting/#every-other-message");
  index = new MiniSearch({ fields: ["title", "path", "text"], tokenize: words, processTerm: term });
  const [pages, none] = [items.map((item, id) => ({ id, ...item })), []];
  index.addAll(
    pages.filter(({ path = none }) => path[0] !== "Project").map(({ id, title, path = none, text }) => ({
      id,
      title: plain(title),
      path: path.slice(1).join(" "),
      text: plain(text),
    })),
  );
}

/**
 * What a section counts: the first guides most, lists of changes, figures and messages less, and the reference little,
 * unless somebody types a name of the code.
 */
function weight(id, named) {
  const { location } = items[id];
  if (/^(changelog|benchmarks)/.test(location) || (location.startsWith("troubleshooting/") && id >= listed)) return 0.4;
  if (/^(client|broker|testing|tutorial)\//.test(location)) return 1.4;
  return location.startsWith("reference/") ? (named ? 0.8 : 0.35) : 1;
}

/** The same results, each behind the best sections of other pages if its own page has given some already. */
function mixed(found) {
  const given = {};
  const again = found.map((each) => {
    const [page] = items[each.id].location.split("#");
    given[page] = (given[page] ?? 0) + 1;
    return { ...each, score: each.score * 0.75 ** (given[page] - 1) };
  });
  return again.sort((one, other) => other.score - one.score);
}

/** Results of a query, best first. The last word may be unfinished. A message that was pasted is spelt right. */
function search(input) {
  const asked = words(input).map(term).filter(Boolean);
  const exact = pasted(input);
  const results = index.search(input, {
    boost: { title: 2.5, path: 2 },
    boostDocument: (id) => weight(id, /^\S*[\p{L}\d][\p{Lu}_.]\S*$/u.test(input.trim())),
    combineWith: "OR",
    fuzzy: (word) => (word.length > 5 && exact === undefined ? 0.15 : false),
    prefix: (word, place, all) => place === all.length - 1,
  });
  const found = mixed(results);
  if (exact !== undefined) found.unshift({ id: exact, terms: [] });
  return found.filter(({ id }, at) => !at || id !== exact).map(({ id, terms }) => ({ id, terms: [...asked, ...terms] }));
}

/** A result with the places of the words that were asked for. */
function shown({ id, terms }) {
  const of = (field) => ({ field, value: { highlight: { ranges: places(items[id][field], new Set(terms)) } }, score: 0 });
  return { id, matches: [of("title"), of("text")] };
}

function answer({ input, page }) {
  if (input !== last.input) last = { input, results: input.trim() ? search(input) : [] };
  const from = page?.from ?? 0;
  const size = page?.size ?? 10;
  const pagination = { total: last.results.length };
  if (from) pagination.prev = { id: 1, size, from: Math.max(0, from - size) };
  if (from + size < last.results.length) pagination.next = { id: 1, size, from: from + size };
  return { items: last.results.slice(from, from + size).map(shown), query: null, aggregations: [], pagination };
}

self.onmessage = ({ data }) => {
  try {
    if (data.type === 0) {
      start(data.data);
      self.postMessage({ type: 1 });
    } else if (data.type === 2) {
      self.postMessage({ type: 3, data: answer(data.data) });
    }
  } catch (error) {
    console.error(error);
    self.postMessage({ type: 4 });
  }
};
