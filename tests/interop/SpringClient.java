import jakarta.websocket.ContainerProvider;
import java.lang.reflect.Type;
import org.springframework.messaging.converter.SimpleMessageConverter;
import org.springframework.messaging.simp.stomp.*;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.messaging.WebSocketStompClient;

/** Takes a URL, a destination, and the bytes for both limits of a message, or 0; prints how long each body is. */
class SpringClient extends StompSessionHandlerAdapter {
    public static void main(String[] arguments) throws Exception {
        int limit = Integer.parseInt(arguments[2]);
        var container = ContainerProvider.getWebSocketContainer();
        var client = new WebSocketStompClient(new StandardWebSocketClient(container));
        client.setMessageConverter(new SimpleMessageConverter());
        if (limit > 0) {
            container.setDefaultMaxTextMessageBufferSize(limit);
            client.setInboundMessageSizeLimit(limit);
        }
        var handler = new SpringClient();
        client.connectAsync(arguments[0], handler).get().subscribe(arguments[1], handler);
        Thread.sleep(60_000);
    }

    @Override public Type getPayloadType(StompHeaders headers) { return byte[].class; }

    @Override public void handleFrame(StompHeaders headers, Object body) {
        System.out.println(((byte[]) body).length);
    }

    @Override public void handleTransportError(StompSession session, Throwable error) {
        System.out.println(error.getMessage());
    }
}
