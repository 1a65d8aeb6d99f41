import jakarta.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Takes URL and QUEUE, and sends: good, a text with a NUL, a property whose name has a line feed, good. */
class Poison {
    public static void main(String[] arguments) throws Exception {
        Connection connection = new ActiveMQConnectionFactory("guest", "guest", arguments[0]).createConnection();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(arguments[1]));
        producer.send(session.createTextMessage("first"));
        producer.send(session.createTextMessage("nul\0in text"));
        Message message = session.createTextMessage("body");
        message.setStringProperty("new\nline", "v");
        producer.send(message);
        producer.send(session.createTextMessage("last"));
        connection.close();
    }
}
