// @stomp/stompjs, in node and in a page of a browser, and @stomp/rx-stomp. Orders: see adapter.py.
// Takes stompjs, a version, RxStomp if it is to be used, and `socket` for SockJS; gives a function from an order to
// a promise of its answer.
function stompjsProgram(stompjs, library, { RxStomp, socket } = {}) {
  const links = new Map();
  const toOctets = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const toText = (octets) => btoa(Array.from(octets, (octet) => String.fromCharCode(octet)).join(""));

  class Link {
    messages = [];
    waiting = new Map();
    subscriptions = new Map();
    transactions = new Map();
    receipts = 0;

    open(order) {
      const [outgoing, incoming] = order.heart_beat;
      this.isText = order.url.startsWith("http"); // SockJS
      const options = {
        ...(this.isText ? { webSocketFactory: () => socket(order.url) } : { brokerURL: order.url }),
        connectHeaders: { login: order.login, passcode: order.passcode, host: order.vhost },
        stompVersions: new stompjs.Versions([order.version]),
        heartbeatOutgoing: outgoing,
        heartbeatIncoming: incoming,
        reconnectDelay: 0,
      };
      return new Promise((resolve, reject) => {
        this.start(options, {
          onConnect: (frame) => resolve(frame.headers),
          onStompError: (frame) => reject(new Error(`refused: ${frame.headers.message}`)),
          onWebSocketError: () => reject(new Error("the WebSocket failed")),
          onWebSocketClose: () => reject(new Error("the WebSocket was closed")),
        });
      });
    }

    start(options, events) {
      this.publisher = this.client = new stompjs.Client({ ...options, ...events });
      this.client.activate();
    }

    listen(destination, keep, headers) {
      return this.client.subscribe(destination, keep, headers);
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
      const body = order.text || this.isText ? { body: new TextDecoder().decode(octets) } : { binaryBody: octets };
      const call = (receipt) => {
        if (receipt) headers.receipt = receipt;
        this.publisher.publish({ destination: order.destination, headers, ...body });
      };
      return order.receipt ? this.confirmed(call) : call();
    }

    subscribe(order) {
      const keep = (message) => {
        const body = toText(message.binaryBody);
        const entry = { handle: String(this.messages.push(message) - 1), headers: message.headers, body };
        this.queue(order.id).push(entry);
      };
      return this.confirmed((receipt) => {
        const headers = { ...order.headers, id: order.id, ack: order.ack, receipt };
        this.subscriptions.set(order.id, this.listen(order.destination, keep, headers));
      });
    }

    queue(id) {
      if (!this.waiting.has(id)) this.waiting.set(id, []);
      return this.waiting.get(id);
    }

    receive = (order) => ({ messages: this.queue(order.id).splice(0, order.count) });

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
    close = () => this.publisher.deactivate();
  }

  class RxLink extends Link {
    start(options, { onConnect, onStompError, onWebSocketError }) {
      this.publisher = new RxStomp();
      this.client = this.publisher.stompClient; // for transactions, as its guide says, and the receipt of SUBSCRIBE
      this.publisher.configure(options);
      this.publisher.serverHeaders$.subscribe((headers) => onConnect({ headers }));
      this.publisher.stompErrors$.subscribe(onStompError);
      this.publisher.webSocketErrors$.subscribe(onWebSocketError);
      this.publisher.activate();
    }

    listen(destination, keep, headers) {
      return this.publisher.watch({ destination, subHeaders: headers }).subscribe(keep);
    }
  }

  return async (order) => {
    try {
      if (order.do === "about") return { ok: { library } };
      if (order.do === "open") links.set(order.link, RxStomp ? new RxLink() : new Link());
      return { ok: (await links.get(order.link)[order.do](order)) ?? {} };
    } catch (error) {
      return { error: String(error) };
    }
  };
}

if (typeof module !== "undefined") module.exports = { stompjsProgram };
