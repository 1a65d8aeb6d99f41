package peer;

import java.io.File;
import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.SimpleAuthenticationPlugin;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/** Takes URIs to listen on. guest/guest may log in, and who names no login; a wrong passcode may not. */
class ActiveMQ {
    public static void main(String[] uris) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("peer");
        broker.setUseJmx(false);
        broker.setDataDirectory("data");
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File("data/kahadb"));
        broker.setPersistenceAdapter(store);
        SimpleAuthenticationPlugin logins =
            new SimpleAuthenticationPlugin(List.of(new AuthenticationUser("guest", "guest", "guests")));
        logins.setAnonymousAccessAllowed(true);
        broker.setPlugins(new BrokerPlugin[] {logins});
        for (String uri : uris) {
            broker.addConnector(uri);
        }
        broker.start();
        broker.waitUntilStopped();
    }
}
