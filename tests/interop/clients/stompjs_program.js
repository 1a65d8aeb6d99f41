// @stomp/stompjs, in node and in a page of a browser. Orders: see adapter.py.
// stompjs: the library, and its version; gives a function from an order to a promise of its answer.
function stompjsProgram(stompjs, library) {
  const links = new Map();
  const toOctets = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const toText = (octets) => btoa(Array.from(octets, (octet) => String.fromCharCode(octet)).join(""));

  class Link {
    messages = [];
    waiting = new Map();
    subscriptions = new Map();
    transactions = new Map();
    receipts = 0;
    alarm = () => {};

    open(order) {
      const [outgoing, incoming] = order.heart_beat;
      return new Promise((resolve, reject) => {
        this.client = new stompjs.Client({
          brokerURL: order.url,
          connectHeaders: { login: order.login, passcode: order.passcode, host: order.vhost },
          stompVersions: new stompjs.Versions([order.version]),
          heartbeatOutgoing: outgoing,
          heartbeatIncoming: incoming,
          reconnectDelay: 0,
          onConnect: (frame) => resolve(frame.headers),
          onStompError: (frame) => reject(new Error(`refused: ${frame.headers.message}`)),
          onWebSocketError: () => reject(new Error("the WebSocket failed")),
          onWebSocketClose: () => reject(new Error("the WebSocket was closed")),
        });
        this.client.activate();
      });
    }

    confirmed(call) {
      const name = `receipt-${++this.receipts}`;
      return new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error("no receipt came")), 10000);
        this.client.watchForReceipt(name, () => resolve({}));
        call(name);
      });
    }

    send(order) {
      const headers = { ...order.headers };
      if (order.transaction) headers.transaction = order.transaction;
      const octets = toOctets(order.body);
      const body = order.text ? { body: new TextDecoder().decode(octets) } : { binaryBody: octets };
      const call = (receipt) => {
        if (receipt) headers.receipt = receipt;
        this.client.publish({ destination: order.destination, headers, ...body });
      };
      return order.receipt ? this.confirmed(call) : call();
    }

    subscribe(order) {
      const keep = (message) => {
        const body = toText(message.binaryBody);
        const entry = { handle: String(this.messages.push(message) - 1), headers: message.headers, body };
        this.queue(order.id).push(entry);
        this.alarm();
      };
      return this.confirmed((receipt) => {
        const headers = { ...order.headers, id: order.id, ack: order.ack, receipt };
        this.subscriptions.set(order.id, this.client.subscribe(order.destination, keep, headers));
      });
    }

    queue(id) {
      if (!this.waiting.has(id)) this.waiting.set(id, []);
      return this.waiting.get(id);
    }

    async receive(order) {
      const queue = this.queue(order.id);
      const timer = new Promise((resolve) => setTimeout(resolve, order.seconds * 1000, "late"));
      while (queue.length < order.count) {
        const arrived = new Promise((resolve) => (this.alarm = resolve));
        if ((await Promise.race([arrived, timer])) === "late") break;
      }
      return { messages: queue.splice(0, order.count) };
    }

    settle(order) {
      this.messages[order.handle][order.do](order.transaction ? { transaction: order.transaction } : {});
    }

    ack = this.settle;
    nack = this.settle;
    unsubscribe = (order) => this.subscriptions.get(order.id).unsubscribe();
    begin = (order) => void this.transactions.set(order.transaction, this.client.begin(order.transaction));
    commit = (order) => this.transactions.get(order.transaction).commit();
    abort = (order) => this.transactions.get(order.transaction).abort();
    alive = () => ({ alive: this.client.connected });
    close = () => this.client.deactivate();
  }

  return async (order) => {
    try {
      if (order.do === "about") return { ok: { library } };
      if (order.do === "open") links.set(order.link, new Link());
      return { ok: (await links.get(order.link)[order.do](order)) ?? {} };
    } catch (error) {
      return { error: String(error) };
    }
  };
}

if (typeof module !== "undefined") module.exports = { stompjsProgram };
