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
            Message request = session.createTextMessage("ping");
            request.setJMSReplyTo(made(session, arguments[at], arguments[2]));
            request.setJMSCorrelationID(arguments[at]);
            MessageConsumer answers = session.createConsumer(request.getJMSReplyTo());
            producer.send(queue, request);
            TextMessage answer = (TextMessage) answers.receive(20_000);
            System.out.println(answer.getJMSCorrelationID() + " " + answer.getText());
        }
        MessageConsumer requests = session.createConsumer(queue);
        Message request;
        while (arguments.length == 3 && (request = requests.receive(20_000)) != null) {
            Message answer = session.createTextMessage(((TextMessage) request).getText() + " pong");
            answer.setJMSCorrelationID(request.getJMSCorrelationID());
            producer.send(request.getJMSReplyTo(), answer);
        }
        connection.close();
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
