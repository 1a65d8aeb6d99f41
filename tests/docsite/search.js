// Feed queries to the search of the built site: its own worker and its own index, without a browser.
//
//     node search.js SITE < queries.json > answers.json
//
// Standard input is a list of texts; the answer has a list of addresses for each, best first.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const workers = path.join(process.argv[2], "assets", "javascripts", "workers");
const script = fs.readdirSync(workers).find((name) => name.startsWith("search."));
const index = JSON.parse(fs.readFileSync(path.join(process.argv[2], "search.json"), "utf-8"));
let answer;
const self = { postMessage: (message) => { answer = message; } };
vm.runInNewContext(fs.readFileSync(path.join(workers, script), "utf-8"), { self, Intl, console, URL });
self.onmessage({ data: { type: 0, data: index } });
const found = JSON.parse(fs.readFileSync(0, "utf-8")).map((input) => {
  self.onmessage({ data: { type: 2, data: { input } } });
  return answer.data.items.map((each) => index.items[each.id].location);
});
process.stdout.write(JSON.stringify(found));
