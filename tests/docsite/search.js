// Feed queries to the search of the built site: its own worker and its own index, without a browser.
//
//     node search.js SITE < queries.json > answers.json
//
// SITE is the folder of the site. Standard input is a list of texts; the answer has a list of addresses for each, best
// first, as the search dialog shows them.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const site = process.argv[2];
const workers = path.join(site, "assets", "javascripts", "workers");
const script = fs.readdirSync(workers).find((name) => name.startsWith("search."));
const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf-8"));
const queries = JSON.parse(fs.readFileSync(0, "utf-8"));

/** What the search dialog sends besides the text. */
const REST = {
  filter: { input: { type: "operator", data: { operator: "and", operands: [] } } },
  aggregation: { input: [{ type: "term", data: { field: "tags" } }] },
};
const waiting = [];
const self = { postMessage: (message) => waiting.shift()(message) };
vm.runInNewContext(fs.readFileSync(path.join(workers, script), "utf-8"), { self, Intl, console, URL });

/** Send one message to the worker, and wait for its answer. */
function ask(message) {
  return new Promise((resolve) => {
    waiting.push(resolve);
    self.onmessage({ data: message });
  });
}

(async () => {
  const ready = await ask({ type: 0, data: index });
  if (ready.type !== 1) throw new Error("the search did not start");
  const answers = [];
  for (const input of queries) {
    const answer = await ask({ type: 2, data: { input, ...REST } });
    if (answer.type !== 3) throw new Error(`the search failed for ${input}`);
    answers.push(answer.data.items.map((each) => index.items[each.id].location));
  }
  process.stdout.write(JSON.stringify(answers));
})();
