// @stomp/stompjs in node, with the package ws for its WebSockets. Orders: see adapter.py.
const readline = require("node:readline");
const path = require("node:path");
const modules = path.join(process.env.STOMPCODEC_NODE_MODULES, "node_modules");
globalThis.WebSocket = require(path.join(modules, "ws")).WebSocket;
const stompjs = require(path.join(modules, "@stomp/stompjs/bundles/stomp.umd.js"));
const { stompjsProgram } = require("./stompjs_program.js");

(async () => {
  const answer = stompjsProgram(stompjs, require(path.join(modules, "@stomp/stompjs/package.json")).version);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))));
  }
  process.exit(0);
})();
