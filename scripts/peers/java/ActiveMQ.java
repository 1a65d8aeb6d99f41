package peer;

import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/** Takes URIs to listen on. guest/guest may log in, and who names no login; a wrong passcode may not. */
class ActiveMQ {
    public static void main(String[] uris) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("peer");
        broker.setUseJmx(false);
        broker.setDataDirectory("data");
        SimpleAuthenticationPlugin logins =
            new SimpleAuthenticationPlugin(List.of(new AuthenticationUser("guest", "guest", "guests")));
        logins.setAnonymousAccessAllowed(true);
        broker.setPlugins(new BrokerPlugin[] {logins});
        for (String uri : uris) { broker.addConnector(uri); }
        broker.start();
        broker.waitUntilStopped();
    }
}
