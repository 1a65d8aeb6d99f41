"use strict";

/* A STOMP client over WebSocket, as much as requests to the broker need. */

const MOST_BYTES = 32 * 2 ** 20; // of a frame that is not complete
const OURS = 30000; // ms: how often we send heart-beats; timers of hidden tabs are slow
const THEIRS = 10000; // ms: how often we want them
const REPLY_TO = "answers";

const ESCAPES = [["\\", "\\\\"], ["\r", "\\r"], ["\n", "\\n"], [":", "\\c"]];

function escaped(text) {
  for (const [plain, code] of ESCAPES) text = text.split(plain).join(code);
  return text;
}

function unescaped(text) {
  return text.replace(/\\(.?)/gs, (all, code) => {
    const found = ESCAPES.find((pair) => pair[1] === "\\" + code);
    if (!found) throw new Error("unknown escape in a header: " + all);
    return found[0];
  });
}

/* CONNECT and CONNECTED have no escapes. */
function frameText(command, headers, body = "") {
  const code = command === "CONNECT" ? (text) => text : escaped;
  const lines = Object.entries(headers).map(([name, value]) => code(name) + ":" + code(String(value)) + "\n");
  return command + "\n" + lines.join("") + "\n" + body + "\0";
}

/* Frames in bytes that arrive in any pieces. */
class FrameReader {
  constructor() {
    this.bytes = new Uint8Array(0);
    this.text = new TextDecoder("utf-8");
  }

  feed(piece) {
    const joined = new Uint8Array(this.bytes.length + piece.length);
    joined.set(this.bytes);
    joined.set(piece, this.bytes.length);
    this.bytes = joined;
    const frames = [];
    for (;;) {
      let start = 0;
      while (start < this.bytes.length && (this.bytes[start] === 10 || this.bytes[start] === 13)) start += 1;
      if (start) this.bytes = this.bytes.subarray(start);
      const frame = this.next();
      if (!frame) break;
      frames.push(frame);
    }
    if (this.bytes.length > MOST_BYTES) throw new Error("a frame is too large");
    return frames;
  }

  next() {
    const bytes = this.bytes;
    let end = -1, body = -1;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) {
      const after = bytes[at + 1] === 13 ? at + 2 : at + 1;
      if (bytes[after] === 10) { end = at; body = after + 1; break; }
    }
    if (end < 0) return null;
    const [command, ...lines] = this.text.decode(bytes.subarray(0, end)).split("\n").map((line) => line.replace(/\r$/, ""));
    const headers = new Map();
    for (const line of lines) {
      const colon = line.indexOf(":");
      if (colon < 0) throw new Error("a header without a colon");
      const pair = [line.slice(0, colon), line.slice(colon + 1)];
      const [name, value] = command === "CONNECTED" ? pair : pair.map(unescaped);
      if (!headers.has(name)) headers.set(name, value);
    }
    let length = Number(headers.get("content-length") ?? NaN);
    if (Number.isInteger(length) && length >= 0) {
      if (length > MOST_BYTES) throw new Error("a frame is too large");
      if (bytes.length <= body + length) return null;
    } else {
      length = bytes.indexOf(0, body) - body;
      if (length < 0) return null;
    }
    if (bytes[body + length] !== 0) throw new Error("a frame without its end");
    this.bytes = bytes.subarray(body + length + 1);
    return { command, headers, body: this.text.decode(bytes.subarray(body, body + length)) };
  }
}

class Refusal extends Error {
  constructor(field, message, ask) {
    super(message);
    this.field = field;
    this.ask = ask;
  }

  get forbidden() { return this.field === "destination" && this.message.startsWith("not allowed"); }
}

/* A connection that comes back. States: connecting, login, up, down. The login is kept here and nowhere else. */
class Stomp {
  constructor(url, settings, onState) {
    this.url = url;
    this.settings = settings;
    this.onState = onState;
    this.login = null;
    this.attempt = 0;
    this.number = 0;
    this.waiting = new Map();
    this.state = "connecting";
    this.session = "";
  }

  open() {
    clearTimeout(this.again);
    this.drop();
    this.enter("connecting");
    const socket = new WebSocket(this.url, ["v12.stomp"]);
    this.socket = socket;
    this.reader = new FrameReader();
    this.why = "";
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      const headers = { "accept-version": "1.2", host: this.settings.host, "heart-beat": OURS + "," + THEIRS };
      if (this.login) Object.assign(headers, { login: this.login.name, passcode: this.login.passcode });
      socket.send(frameText("CONNECT", headers));
    };
    socket.onmessage = (event) => socket === this.socket && this.take(event.data);
    socket.onclose = () => socket === this.socket && this.closed();
    this.deadline(15000);
  }

  /* Forget the socket, whose events mean nothing from now on. */
  drop() {
    clearInterval(this.beat);
    clearTimeout(this.silence);
    const socket = this.socket;
    this.socket = null;
    if (socket) socket.close();
    for (const wait of this.waiting.values()) wait.fail(new Refusal("", "The connection was lost before the answer.", wait.ask));
    this.waiting.clear();
  }

  deadline(milliseconds) {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      this.why = "The broker was silent for " + Math.round(milliseconds / 1000) + " s.";
      this.closed();
    }, milliseconds);
  }

  take(data) {
    try {
      const bytes = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
      for (const frame of this.reader.feed(bytes)) this.frame(frame);
      if (this.state === "up" && this.wants) this.deadline(this.wants * 2.5);
    } catch (error) {
      this.why = "The broker's answer cannot be read: " + error.message + ".";
      this.closed();
    }
  }

  frame({ command, headers, body }) {
    if (command === "CONNECTED") this.connected(headers);
    else if (command === "MESSAGE") this.answered(headers, body);
    else if (command === "ERROR") {
      this.why = headers.get("message") || "The broker has closed the connection.";
      const detail = body.trim(), forbidden = this.why.startsWith("not allowed"); // to subscribe to the answers
      if (forbidden) this.why = "This user may not manage the broker";
      if (this.state === "connecting" || forbidden) {
        this.drop();
        this.login = null;
        this.enter("login", this.why);
      } else if (detail) this.why += ": " + detail;
    }
  }

  connected(headers) {
    clearTimeout(this.silence);
    this.attempt = 0;
    this.session = headers.get("session") || "";
    const [sends, wants] = (headers.get("heart-beat") || "0,0").split(",").map(Number);
    this.wants = sends ? Math.max(sends, THEIRS) : 0;
    if (wants) this.beat = setInterval(() => this.socket.send("\n"), Math.max(wants, OURS) * 0.8);
    if (this.wants) this.deadline(this.wants * 2.5);
    this.reply = this.settings.temp + REPLY_TO;
    if (this.settings.subscribe) this.socket.send(frameText("SUBSCRIBE", { id: "a", destination: this.reply, ack: "auto" }));
    this.enter("up");
  }

  closed() {
    this.drop();
    this.attempt += 1;
    const seconds = Math.min(15, 2 ** (this.attempt - 1));
    this.enter("down", (this.why || "The broker cannot be reached.") + " Next attempt in " + seconds + " s.");
    this.again = setTimeout(() => this.open(), seconds * 1000);
  }

  leave() {
    this.login = null;
    clearTimeout(this.again);
    this.drop();
    this.enter("login", "");
  }

  enter(state, why = "") {
    this.state = state;
    this.onState(state, why);
  }

  answered(headers, body) {
    const wait = this.waiting.get(headers.get("correlation-id"));
    if (!wait) return;
    this.waiting.delete(headers.get("correlation-id"));
    const answer = JSON.parse(body);
    if (answer.error) wait.fail(new Refusal(answer.error.field, answer.error.message, wait.ask));
    else wait.done(answer);
  }

  /* Return a promise of the answer. It is rejected with a Refusal. */
  ask(ask, fields = {}, seconds = 20) {
    if (this.state !== "up") return Promise.reject(new Refusal("", "There is no connection to the broker.", ask));
    const number = String(++this.number);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(number);
        reject(new Refusal("", "The broker has not answered for " + seconds + " s.", ask));
      }, seconds * 1000);
      const after = (then) => (value) => { clearTimeout(timer); then(value); };
      this.waiting.set(number, { ask, done: after(resolve), fail: after(reject) });
      const headers = {
        destination: this.settings.prefix + ask, "reply-to": this.reply, "correlation-id": number, "content-type": "application/json",
      };
      this.socket.send(frameText("SEND", headers, JSON.stringify(fields)));
    });
  }
}
