package peer;

import jakarta.servlet.*;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.security.Principal;
import java.util.List;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.*;
import org.springframework.messaging.*;
import org.springframework.messaging.handler.annotation.*;
import org.springframework.messaging.simp.SimpMessageType;
import org.springframework.messaging.simp.annotation.*;
import org.springframework.messaging.simp.config.*;
import org.springframework.messaging.simp.stomp.*;
import org.springframework.messaging.support.*;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.security.authentication.UsernamePasswordAuthenticationToken;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.context.SecurityContextHolder;
import org.springframework.security.core.userdetails.*;
import org.springframework.security.provisioning.InMemoryUserDetailsManager;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.security.web.authentication.www.BasicAuthenticationFilter;
import org.springframework.security.web.context.HttpSessionSecurityContextRepository;
import org.springframework.stereotype.Controller;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.socket.config.annotation.*;
import org.springframework.web.socket.server.standard.ServletServerContainerFactoryBean;

/**
 * STOMP endpoints; all speak HTTP, on one port:
 *   /stomp   WebSocket; CONNECT: guest/guest, any login with passcode "secret", or no login; else ERROR
 *   /sockjs  the same through SockJS
 *   /closed/stomp, /closed/sockjs  as above, but the HTTP request has to log in by Basic as ann/secret, or by
 *            "Authorization: Bearer letmein", or by the session cookie of such a request
 * SEND to /app/echo answers the user at /user/queue/replies, to /app/all sends to /topic/all, /app/fail raises: its
 * text comes to /user/queue/errors. SUBSCRIBE to /app/hello answers once, to /topic/refused by ERROR.
 */
@EnableAutoConfiguration
@EnableWebSocketMessageBroker
@Configuration(proxyBeanMethods = false)
@Import(Spring.Answers.class)
public class Spring implements WebSocketMessageBrokerConfigurer {
    private static final long BEAT = Long.parseLong(System.getenv("PEER_HEART_BEAT"));
    private static final int LIMIT = Integer.parseInt(System.getenv("PEER_LIMIT"));

    @Override public void registerStompEndpoints(StompEndpointRegistry endpoints) {
        endpoints.setPreserveReceiveOrder(!System.getenv("PEER_RELAY").isEmpty());
        endpoints.addEndpoint("/stomp", "/closed/stomp").setAllowedOriginPatterns("*");
        endpoints.addEndpoint("/sockjs", "/closed/sockjs").setAllowedOriginPatterns("*").withSockJS();
    }

    @Override public void configureWebSocketTransport(WebSocketTransportRegistration transport) {
        if (LIMIT > 0) { transport.setMessageSizeLimit(LIMIT).setSendBufferSizeLimit(8 * LIMIT); }
    }

    @Bean ServletServerContainerFactoryBean container() {
        ServletServerContainerFactoryBean container = new ServletServerContainerFactoryBean();
        if (LIMIT > 0) { container.setMaxTextMessageBufferSize(LIMIT); container.setMaxBinaryMessageBufferSize(LIMIT); }
        return container;
    }

    @Override public void configureMessageBroker(MessageBrokerRegistry broker) {
        ThreadPoolTaskScheduler beats = new ThreadPoolTaskScheduler();
        beats.initialize();
        broker.setApplicationDestinationPrefixes("/app");
        String relay = System.getenv("PEER_RELAY");
        if (relay.isEmpty()) {
            broker.enableSimpleBroker("/topic", "/queue")
                .setTaskScheduler(beats).setHeartbeatValue(new long[] {BEAT, BEAT});
            return;
        }
        StompBrokerRelayRegistration far = broker.setPreservePublishOrder(true)
            .enableStompBrokerRelay("/topic", "/queue", "/exchange", "/amq/queue", "/temp-queue", "/temp-topic")
            .setRelayHost("127.0.0.1").setRelayPort(Integer.parseInt(relay))
            .setSystemHeartbeatSendInterval(BEAT).setSystemHeartbeatReceiveInterval(BEAT)
            .setUserDestinationBroadcast("/topic/unresolved-user").setUserRegistryBroadcast("/topic/user-registry");
        String login = System.getenv("PEER_RELAY_LOGIN"), passcode = System.getenv("PEER_RELAY_PASSCODE");
        far.setSystemLogin(login).setSystemPasscode(passcode).setClientLogin(login).setClientPasscode(passcode);
        if (!System.getenv("PEER_RELAY_VHOST").isEmpty()) { far.setVirtualHost(System.getenv("PEER_RELAY_VHOST")); }
    }

    @Override public void configureClientInboundChannel(ChannelRegistration channel) {
        channel.interceptors(new ChannelInterceptor() {
            @Override public Message<?> preSend(Message<?> message, MessageChannel to) {
                StompHeaderAccessor frame = MessageHeaderAccessor.getAccessor(message, StompHeaderAccessor.class);
                if (frame == null) { return message; }
                if ("/topic/refused".equals(frame.getDestination())) { throw new MessagingException("refused"); }
                // The type, not the command: that may also be STOMP.
                if (frame.getMessageType() != SimpMessageType.CONNECT || frame.getLogin() == null) { return message; }
                boolean guest = frame.getLogin().equals("guest") && "guest".equals(frame.getPasscode());
                if (!guest && !"secret".equals(frame.getPasscode())) { throw new MessagingException("wrong passcode"); }
                String name = frame.getLogin();
                frame.setUser((Principal) () -> name);
                return message;
            }
        });
    }

    @Bean UserDetailsService users() {
        return new InMemoryUserDetailsManager(User.withUsername("ann").password("{noop}secret").roles("USER").build());
    }

    @Bean SecurityFilterChain security(HttpSecurity http) throws Exception {
        return http.csrf(off -> off.disable())
            .httpBasic(basic -> basic.securityContextRepository(new HttpSessionSecurityContextRepository()))
            .authorizeHttpRequests(all -> all.requestMatchers("/closed/**").authenticated().anyRequest().permitAll())
            .addFilterBefore(new Bearer(), BasicAuthenticationFilter.class).build();
    }

    static class Bearer extends OncePerRequestFilter {
        @Override protected void doFilterInternal(HttpServletRequest request, HttpServletResponse answer,
                FilterChain rest) throws ServletException, IOException {
            if ("Bearer letmein".equals(request.getHeader("Authorization"))) {
                SecurityContextHolder.getContext().setAuthentication(
                    UsernamePasswordAuthenticationToken.authenticated("bearer", null, List.of()));
            }
            rest.doFilter(request, answer);
        }
    }

    @Controller static class Answers {
        @MessageMapping("/echo") @SendToUser("/queue/replies") String echo(String text) { return text.toUpperCase(); }
        @MessageMapping("/all") @SendTo("/topic/all") String all(String text) { return text; }
        @MessageMapping("/fail") void fail(String text) { throw new IllegalStateException("failed: " + text); }
        @SubscribeMapping("/hello") String hello() { return "hello"; }
        @MessageExceptionHandler @SendToUser("/queue/errors") String failed(Exception e) { return e.getMessage(); }
    }

    public static void main(String[] args) { SpringApplication.run(Spring.class, args); }
}
