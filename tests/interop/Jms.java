import jakarta.jms.*;
import java.util.ArrayList;

/** Takes a class of connection factories, URL, QUEUE, and kinds of messages; or "read" and a number of them to print. */
class Jms {
    public static void main(String[] arguments) throws Exception {
        Object factory = Class.forName(arguments[0]).getConstructor(String.class).newInstance(arguments[1]);
        Connection connection = ((ConnectionFactory) factory).createConnection("guest", "guest");
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(arguments[2]);
        if (arguments[3].equals("read")) {
            MessageConsumer consumer = session.createConsumer(queue);
            for (int left = Integer.parseInt(arguments[4]); left > 0; left--) { show(consumer.receive(20_000)); }
        } else {
            MessageProducer producer = session.createProducer(queue);
            for (int at = 3; at < arguments.length; at++) { producer.send(made(session, arguments[at])); }
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
