import jakarta.jms.*;

/** Takes a class of connection factories, URL, QUEUE, and kinds of reply-to to ask with; or none, and answers there. */
class Requests {
    public static void main(String[] arguments) throws Exception {
        Object factory = Class.forName(arguments[0]).getConstructor(String.class).newInstance(arguments[1]);
        Connection connection = ((ConnectionFactory) factory).createConnection("guest", "guest");
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(arguments[2]);
        MessageProducer producer = session.createProducer(null);
        for (int at = 3; at < arguments.length; at++) {
            Destination replies = made(session, arguments[at], arguments[2]);
            MessageConsumer consumer = session.createConsumer(replies);
            TextMessage request = session.createTextMessage(arguments[at]);
            request.setJMSReplyTo(replies);
            producer.send(queue, request);
            System.out.println(((TextMessage) consumer.receive(20_000)).getText());
        }
        if (arguments.length > 3) { System.exit(0); }
        MessageConsumer requests = session.createConsumer(queue);
        while (true) {
            TextMessage asked = (TextMessage) requests.receive();
            TextMessage answer = session.createTextMessage(asked.getText() + " pong");
            answer.setJMSCorrelationID(asked.getJMSCorrelationID());
            producer.send(asked.getJMSReplyTo(), answer);
        }
    }

    static Destination made(Session session, String kind, String name) throws JMSException {
        switch (kind) {
            case "queue": return session.createQueue(name + ".answers");
            case "topic": return session.createTopic(name + ".topic");
            case "temp-topic": return session.createTemporaryTopic();
            default: return session.createTemporaryQueue();
        }
    }
}
