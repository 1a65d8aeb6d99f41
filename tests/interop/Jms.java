import jakarta.jms.*;
import java.util.ArrayList;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Takes URL, QUEUE, and kinds of messages to send; or "read", and the number of messages to print: type and body. */
class Jms {
    public static void main(String[] arguments) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection("guest", "guest");
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(arguments[1]);
        if (arguments[2].equals("read")) {
            MessageConsumer consumer = session.createConsumer(queue);
            for (int left = Integer.parseInt(arguments[3]); left > 0; left--) { show(consumer.receive(20_000)); }
        } else {
            MessageProducer producer = session.createProducer(queue);
            for (int at = 2; at < arguments.length; at++) { producer.send(made(session, arguments[at])); }
        }
        connection.close();
    }

    static void show(Message message) throws Exception {
        boolean isText = message instanceof TextMessage;
        byte[] octets = isText ? new byte[0] : message.getBody(byte[].class);
        System.out.println(isText ? "text " + ((TextMessage) message).getText() : "bytes " + new String(octets));
    }

    static Message made(Session session, String kind) throws Exception {
        Message message = switch (kind) {
            case "bytes" -> session.createBytesMessage();
            case "map" -> session.createMapMessage();
            case "object" -> session.createObjectMessage(new ArrayList<>());
            case "stream" -> session.createStreamMessage();
            case "nul" -> session.createTextMessage("nul\0in text");
            default -> session.createTextMessage(kind);
        };
        if (message instanceof BytesMessage bytes) { bytes.writeBytes(kind.getBytes()); }
        if (message instanceof MapMessage map) { map.setString("city", "Bonn"); }
        if (message instanceof StreamMessage stream) { stream.writeInt(7); }
        if (kind.equals("property")) { message.setStringProperty("new\nline", "v"); }
        return message;
    }
}
