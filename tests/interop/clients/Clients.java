import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.stomp.*;
import jakarta.websocket.ContainerProvider;
import java.io.*;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.springframework.messaging.simp.stomp.*;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.web.socket.WebSocketHttpHeaders;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.messaging.WebSocketStompClient;

/** Spring's two clients, and that of Vert.x. Orders: see adapter.py. */
class Clients {
    public static void main(String[] arguments) throws Exception {
        Map<String, Link> links = new HashMap<>();
        boolean isVertx = arguments[0].equals("Vert.x");
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err); // the libraries log there
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null;) {
            JsonObject order = new JsonObject(line), answer = new JsonObject();
            try {
                String verb = order.getString("do"), link = order.getString("link", "");
                if (verb.equals("open")) { links.put(link, isVertx ? new VertxLink() : new SpringLink()); }
                Package library = (isVertx ? StompClient.class : StompSession.class).getPackage();
                answer.put("ok", verb.equals("about") ? Map.of("library", library.getImplementationVersion())
                    : links.get(link).obey(order));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            answers.println(answer.encode());
        }
        System.exit(0);
    }

    record Got(Object message, Map<String, String> headers, byte[] body) { }

    abstract static class Link {
        private final List<Object> messages = new ArrayList<>();
        private final Map<String, Queue<Got>> waiting = new ConcurrentHashMap<>();

        void put(String id, Object message, Map<String, String> headers, byte[] body) {
            waiting.computeIfAbsent(id, name -> new ConcurrentLinkedQueue<>()).add(new Got(message, headers, body));
        }

        private Map<String, ?> receive(String id, int count) {
            List<Map<String, ?>> taken = new ArrayList<>();
            Queue<Got> all = waiting.getOrDefault(id, new ArrayDeque<>());
            for (Got got; taken.size() < count && (got = all.poll()) != null;) {
                String body = Base64.getEncoder().encodeToString(got.body);
                taken.add(Map.of("handle", "" + messages.size(), "headers", got.headers, "body", body));
                messages.add(got.message);
            }
            return Map.of("messages", taken);
        }

        Object obey(JsonObject order) throws Exception {
            Map<String, String> headers = new HashMap<>();
            for (var each : order.getJsonObject("headers", new JsonObject())) {
                headers.put(each.getKey(), "" + each.getValue());
            }
            for (String name : List.of("transaction", "destination", "id", "ack")) {
                if (order.getString(name) != null) { headers.put(name, order.getString(name)); }
            }
            String verb = order.getString("do"), receipt = UUID.randomUUID().toString();
            switch (verb) {
                case "open" -> { return open(order); }
                case "receive" -> { return receive(order.getString("id"), order.getInteger("count")); }
                case "alive" -> { return Map.of("alive", alive()); }
                case "send" -> {
                    if (order.getBoolean("receipt")) { headers.put("receipt", receipt); }
                    send(headers, Base64.getDecoder().decode(order.getString("body")));
                }
                case "subscribe" -> {
                    headers.put("receipt", receipt);
                    subscribe(headers);
                }
                case "ack", "nack" -> settle(verb, messages.get(Integer.parseInt(order.getString("handle"))), headers);
                case "unsubscribe" -> unsubscribe(order.getString("destination"), order.getString("id"));
                case "close" -> close();
                default -> transact(verb, order.getString("transaction"));
            }
            return Map.of();
        }

        abstract Map<String, String> open(JsonObject order) throws Exception;
        abstract void send(Map<String, String> headers, byte[] body) throws Exception;
        abstract void subscribe(Map<String, String> headers) throws Exception;
        abstract void settle(String verb, Object message, Map<String, String> headers) throws Exception;
        abstract void unsubscribe(String destination, String id) throws Exception;
        abstract void transact(String verb, String transaction) throws Exception;
        abstract boolean alive();
        abstract void close() throws Exception;
    }

    static class SpringLink extends Link implements StompFrameHandler {
        private final Map<String, StompSession.Subscription> subscriptions = new HashMap<>();
        private final CompletableFuture<StompHeaders> connected = new CompletableFuture<>();
        private String version;
        private StompSession session;

        class Handler extends StompSessionHandlerAdapter {
            @Override public void afterConnected(StompSession session, StompHeaders headers) {
                connected.complete(headers);
            }
            @Override public void handleFrame(StompHeaders headers, Object body) {
                connected.completeExceptionally(new IOException("refused: " + headers.getFirst("message")));
            }
            @Override public void handleTransportError(StompSession session, Throwable error) {
                connected.completeExceptionally(error);
            }
        }

        @Override Map<String, String> open(JsonObject order) throws Exception {
            ThreadPoolTaskScheduler beats = new ThreadPoolTaskScheduler();
            beats.initialize();
            version = order.getString("version");
            StompHeaders headers = new StompHeaders();
            headers.setLogin(order.getString("login"));
            headers.setPasscode(order.getString("passcode"));
            headers.setHost(order.getString("vhost"));
            headers.setAcceptVersion(version);
            var beat = order.getJsonArray("heart_beat");
            headers.setHeartbeat(new long[] {beat.getLong(0), beat.getLong(1)});
            CompletableFuture<StompSession> session;
            String url = order.getString("url");
            if (url.isEmpty()) {
                var client = new ReactorNettyTcpStompClient(order.getString("host"), order.getInteger("port"));
                client.setTaskScheduler(beats);
                session = client.connectAsync(headers, new Handler());
            } else {
                var container = ContainerProvider.getWebSocketContainer();
                container.setDefaultMaxTextMessageBufferSize(1 << 22);
                container.setDefaultMaxBinaryMessageBufferSize(1 << 22);
                var client = new WebSocketStompClient(new StandardWebSocketClient(container));
                client.setInboundMessageSizeLimit(1 << 22);
                client.setTaskScheduler(beats);
                session = client.connectAsync(url, new WebSocketHttpHeaders(), headers, new Handler());
            }
            var answer = connected.get(30, TimeUnit.SECONDS).toSingleValueMap();
            this.session = session.get();
            return answer;
        }

        private StompHeaders of(Map<String, String> headers) {
            StompHeaders made = new StompHeaders();
            made.setAll(headers);
            return made;
        }

        private void confirmed(StompSession.Receiptable sent) throws Exception {
            CompletableFuture<Object> receipt = new CompletableFuture<>();
            sent.addReceiptTask(() -> receipt.complete(""));
            receipt.get(10, TimeUnit.SECONDS);
        }

        @Override void send(Map<String, String> headers, byte[] body) throws Exception {
            var sent = session.send(of(headers), body);
            if (headers.containsKey("receipt")) { confirmed(sent); }
        }

        @Override void subscribe(Map<String, String> headers) throws Exception {
            var made = session.subscribe(of(headers), this);
            subscriptions.put(headers.get("id"), made);
            confirmed(made);
        }

        @Override public Type getPayloadType(StompHeaders headers) { return byte[].class; }

        @Override public void handleFrame(StompHeaders headers, Object body) {
            byte[] content = body == null ? new byte[0] : (byte[]) body;
            put(headers.getSubscription(), headers, headers.toSingleValueMap(), content);
        }

        @Override void settle(String verb, Object message, Map<String, String> headers) {
            StompHeaders got = (StompHeaders) message;
            StompHeaders given = of(headers);
            if (version.equals("1.2")) {
                given.setId(got.getAck());
            } else {
                given.setMessageId(got.getMessageId());
                given.setSubscription(got.getSubscription());
            }
            session.acknowledge(given, verb.equals("ack"));
        }

        @Override void unsubscribe(String destination, String id) { subscriptions.get(id).unsubscribe(); }

        @Override void transact(String verb, String transaction) { throw new IllegalStateException("it has none"); }

        @Override boolean alive() { return session.isConnected(); }
        @Override void close() { session.disconnect(); }
    }

    static class VertxLink extends Link {
        private static final Vertx VERTX = Vertx.vertx();
        private StompClient client; // it closes its connections when nothing refers to it
        private StompClientConnection connection;

        private <T> T done(Future<T> future) throws Exception {
            return future.toCompletionStage().toCompletableFuture().get(30, TimeUnit.SECONDS);
        }

        @Override Map<String, String> open(JsonObject order) throws Exception {
            var beat = order.getJsonArray("heart_beat");
            client = StompClient.create(VERTX, new StompClientOptions()
                .setHost(order.getString("host")).setPort(order.getInteger("port"))
                .setLogin(order.getString("login")).setPasscode(order.getString("passcode"))
                .setVirtualHost(order.getString("vhost")).setAcceptedVersions(List.of(order.getString("version")))
                .setHeartbeat(new JsonObject().put("x", beat.getValue(0)).put("y", beat.getValue(1))));
            connection = done(client.connect());
            return Map.of("version", connection.version());
        }

        @Override void send(Map<String, String> headers, byte[] body) throws Exception {
            boolean isConfirmed = headers.remove("receipt") != null; // it makes one of its own for each frame
            var sent = connection.send(headers, Buffer.buffer(body));
            if (isConfirmed) { done(sent); }
        }

        @Override void subscribe(Map<String, String> headers) throws Exception {
            headers.remove("receipt");
            done(connection.subscribe(headers.get("destination"), headers, frame ->
                put(headers.get("id"), frame, frame.getHeaders(), frame.getBodyAsByteArray())));
        }

        @Override void settle(String verb, Object message, Map<String, String> headers) throws Exception {
            String id = ((Frame) message).getHeader("ack"), transaction = headers.get("transaction");
            if (transaction == null) {
                done(verb.equals("ack") ? connection.ack(id) : connection.nack(id));
            } else {
                done(verb.equals("ack") ? connection.ack(id, transaction) : connection.nack(id, transaction));
            }
        }

        @Override void unsubscribe(String destination, String id) throws Exception {
            done(connection.unsubscribe(destination, new HashMap<>(Map.of("id", id))));
        }

        @Override void transact(String verb, String transaction) throws Exception {
            done(verb.equals("begin") ? connection.beginTX(transaction)
                : verb.equals("commit") ? connection.commit(transaction) : connection.abort(transaction));
        }

        @Override boolean alive() { return connection.isConnected(); }
        @Override void close() throws Exception { done(connection.disconnect()); }
    }
}
