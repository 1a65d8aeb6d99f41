package peer;

import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.auth.User;
import io.vertx.ext.auth.authentication.UsernamePasswordCredentials;
import io.vertx.ext.stomp.*;
import java.util.List;

/** Takes the ports of STOMP and of WebSocket; /queue/ names are queues, all others topics. */
class VertxStomp {
    public static void main(String[] args) {
        Vertx vertx = Vertx.vertx();
        // The handler needs a context for logins.
        vertx.runOnContext(now -> serve(vertx, Integer.parseInt(args[0]), Integer.parseInt(args[1])));
    }

    private static void serve(Vertx vertx, int port, int web) {
        int beat = Integer.parseInt(System.getenv("PEER_HEART_BEAT"));
        boolean secured = !System.getenv("PEER_SECURED").isEmpty();
        StompServerHandler handler = StompServerHandler.create(vertx)
            .authProvider(login -> login instanceof UsernamePasswordCredentials given
                    && "guest".equals(given.getUsername()) && "guest".equals(given.getPassword())
                ? Future.succeededFuture(User.fromName("guest")) : Future.failedFuture("wrong login"))
            .destinationFactory((v, name) ->
                name.startsWith("/queue/") ? Destination.queue(v, name) : Destination.topic(v, name));
        StompServer stomp = StompServer.create(vertx, new StompServerOptions()
            .setHost("127.0.0.1").setPort(port).setSecured(secured).setWebsocketBridge(true)
            .setHeartbeat(new JsonObject().put("x", beat).put("y", beat))).handler(handler);
        vertx.createHttpServer(new HttpServerOptions().setHost("127.0.0.1").setPort(web)
                .setWebSocketSubProtocols(List.of("v10.stomp", "v11.stomp", "v12.stomp")))
            .webSocketHandshakeHandler(stomp.webSocketHandshakeHandler())
            .webSocketHandler(stomp.webSocketHandler()).listen()
            .compose(http -> stomp.listen())
            .onFailure(error -> { error.printStackTrace(); System.exit(1); });
    }
}
