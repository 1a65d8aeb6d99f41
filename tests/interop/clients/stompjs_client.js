// @stomp/stompjs or @stomp/rx-stomp in node, over WebSockets of the package ws, or SockJS. Orders: see adapter.py.
const readline = require("node:readline");
const path = require("node:path");
const at = (...names) => path.join(process.env.STOMPCODEC_NODE_MODULES, "node_modules", ...names);
globalThis.WebSocket = require(at("ws")).WebSocket;
const { stompjsProgram } = require("./stompjs_program.js");

(async () => {
  const name = process.env.STOMPCODEC_SHELL;
  const rx = name === "rx-stomp" ? await import(at("@stomp/rx-stomp/esm6/index.js")) : {};
  const more = { RxStomp: rx.RxStomp, socket: (url) => new (require(at("sockjs-client")))(url) };
  const stompjs = await import(at("@stomp/stompjs/esm6/index.js"));
  const answer = stompjsProgram(stompjs, require(at("@stomp", name, "package.json")).version, more);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))));
  }
  process.exit(0);
})();
