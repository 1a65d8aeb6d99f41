"""What people complain of and ask for, in their words, and where the site answers it.

The first list is what users of STOMP libraries wrote in issue trackers, shortened; the second what they ask for and no
library had. Each has the places that answer it; a place may be a page, with everything on it, or one section.
"""

from __future__ import annotations

_SYMPTOM = "troubleshooting/#"

COMPLAINTS: dict[str, tuple[str, ...]] = {
    "A message vanished since one read was a lone newline inside it and passed for a heart-beat, about every 4 h at 30 "
    "msg/s": (f"{_SYMPTOM}a-message-vanished",),
    "Busy listener ⇒ server heart-beats unread ⇒ own client cuts the line": (
        f"{_SYMPTOM}the-connection-is-cut-while-a-handler-or-listener-is-busy",
        "client/#heart-beats",
        "compat/#stomppy-heart-beats-while-a-listener-blocks",
    ),
    "Heart-beat check is too tight: broker skips a beat after a message, or stretches to 2×": (
        f"{_SYMPTOM}heart-beats-time-out-although-the-broker-is-alive",
        "client/#heart-beats",
    ),
    "stompman gave up checking server beats after months of false reconnects; read stopped for back-pressure also "
    "starved beats": (
        f"{_SYMPTOM}heart-beats-time-out-although-the-broker-is-alive",
        f"{_SYMPTOM}heart-beats-fail-while-reading-is-paused",
    ),
    "Heart-beats stop, or `on_disconnected` repeats, after reconnect because listeners run in name order": (
        f"{_SYMPTOM}heart-beats-stop-or-callbacks-repeat-after-a-reconnect",
    ),
    "Reconnect left to users and done wrong inside the callback": (
        f"{_SYMPTOM}the-program-does-not-reconnect-or-reconnects-inside-a-callback",
        "client/#reconnecting",
    ),
    "Outbox flushed before subscriptions are back ⇒ replies lost": (
        f"{_SYMPTOM}replies-are-lost-after-a-reconnect",
        "client/#reconnecting",
    ),
    "Ack sent on a new connection for a message of the old one ⇒ ERROR or double work": (
        f"{_SYMPTOM}an-ack-after-a-reconnect-causes-an-error-or-double-work",
    ),
    '"We lose messages when sending" — no confirmation': (
        f"{_SYMPTOM}messages-are-lost-when-sending-did-they-arrive",
        "client/#receipts-and-outcomes",
    ),
    "ERROR frame reaches nobody": (f"{_SYMPTOM}an-error-frame-reaches-nobody",),
    "Refused SUBSCRIBE is replayed for ever": (f"{_SYMPTOM}a-refused-subscribe-is-sent-again-and-again",),
    "Heart-beat thread closes the socket the reader uses ⇒ aborts, segfaults": (
        f"{_SYMPTOM}crashes-segfaults-or-random-failures-with-threads-and-tls",
    ),
    "TLS with reader and writer threads ⇒ random connect failures": (
        f"{_SYMPTOM}crashes-segfaults-or-random-failures-with-threads-and-tls",
    ),
    "User lock + library lock dead-lock; races in waits": (
        f"{_SYMPTOM}dead-locks-and-races-in-waits",
        "client/#threads",
    ),
    "Both sides blocked writing: total stall at 500 × 100 kB": (f"{_SYMPTOM}everything-stalls-when-both-sides-write",),
    "One exception in `on_message` closes the connection with a mere warning": (
        f"{_SYMPTOM}one-exception-in-a-handler-closes-the-connection",
        "client/#handlers",
    ),
    "30 MB messages take very long": (f"{_SYMPTOM}large-messages-take-very-long", "large-bodies/"),
    "100 MB cap hits as an uncaught exception": (f"{_SYMPTOM}a-frame-is-larger-than-the-limit",),
    "No bound on an unfinished frame ⇒ pre-auth memory attack": (
        f"{_SYMPTOM}memory-grows-with-an-unfinished-frame-attacks-before-login",
        "broker/#limits",
    ),
    "`content-length: -5`, `100abc`, huge ⇒ crash or monster allocation": (
        f"{_SYMPTOM}a-wrong-content-length-crashes-the-program-or-takes-all-memory",
    ),
    "gzip bodies blow up text decoding": (f"{_SYMPTOM}compressed-bodies-arrive-as-garbage-gzip",),
    "Content-length turns JMS text into bytes": (
        f"{_SYMPTOM}text-arrives-as-bytes-in-jms",
        "activemq/#send-and-receive",
        "broker-extensions/#text-and-bytes-of-jms",
    ),
    "Body with NUL cut": (f"{_SYMPTOM}a-body-with-nul-is-cut",),
    "Escaping missing or of the wrong version": (f"{_SYMPTOM}escapes-are-wrong-or-missing-in-headers",),
    "coilmq unusable with heart-beats; big message corrupts its buffer": (
        f"{_SYMPTOM}coilmq-is-unusable-with-heart-beats",
        "broker/",
    ),
    "NACK means something else on each broker": (
        f"{_SYMPTOM}nack-does-something-else-on-each-broker",
        "brokers/",
    ),
    "ack header differs 1.0/1.1/1.2": (f"{_SYMPTOM}ack-is-refused-another-header-in-each-version",),
    "Prefetch names differ and defaults hurt": (
        f"{_SYMPTOM}one-consumer-gets-everything-or-prefetch-has-no-effect",
        "brokers/",
    ),
    "Order broken under load; buffers grow without limit": (
        f"{_SYMPTOM}messages-arrive-out-of-order-or-buffers-grow-without-limit",
    ),
    "Unsubscribe/disconnect dead-locks and panics when the peer is silent": (
        f"{_SYMPTOM}unsubscribe-disconnect-or-close-hangs-or-panics-when-the-peer-is-silent",
    ),
    "asyncio wanted": (f"{_SYMPTOM}a-program-needs-asyncio", "client/"),
    "mock broker wanted": (f"{_SYMPTOM}a-test-needs-a-mock-broker", "testing/"),
    "WebSocket chunking": (f"{_SYMPTOM}websocket-frames-split-or-join-stomp-frames",),
    "passcode in logs": (f"{_SYMPTOM}passcodes-appear-in-logs", "client/#callbacks-and-logging"),
    "untyped (needs `type: ignore` on each stomp import)": (f"{_SYMPTOM}the-library-is-untyped-for-mypy-or-pyright",),
    "trace context lost over STOMP": (f"{_SYMPTOM}the-trace-context-is-lost-over-stomp", "tracing/"),
    "endless loop between read time-out and server beats": (f"{_SYMPTOM}heart-beats-fail-while-reading-is-paused",),
    "body only a heart-beat crashes decoder": (
        f"{_SYMPTOM}a-body-that-is-only-a-newline-or-a-heart-beat-crashes-the-decoder",
    ),
}

WISHES: dict[str, tuple[str, ...]] = {
    "A fast sans-I/O STOMP codec with typed errors, limits, offsets and lint rule ids.": ("codec/", "reference/codec/"),
    "A pytest fixture with a real-wire broker: waits, faults, recording, virtual clock.": ("testing/",),
    "Drop-in accelerator for stomp.py / stompman without changing their users' code.": (
        "compat/",
        "coming-from-stomp-py/",
        "coming-from-stompman/",
    ),
    "Awaitable receipts for every command in sync and async, with the three-way outcome.": (
        "client/#receipts-and-outcomes",
    ),
    "Right restore order and stale-ack protection together.": (
        "client/#reconnecting",
        f"{_SYMPTOM}an-ack-after-a-reconnect-causes-an-error-or-double-work",
        f"{_SYMPTOM}replies-are-lost-after-a-reconnect",
    ),
    "Dialect layer: one `prefetch=`, `nack(requeue=)`, `durable=`, `content_length=auto` for RabbitMQ / ActiveMQ / "
    "Artemis / Oracle OCI Queue.": ("brokers/",),
    "Bounded gzip (`content-encoding`) — Darwin/National Rail users' daily need.": (
        f"{_SYMPTOM}compressed-bodies-arrive-as-garbage-gzip",
        "network-rail/#national-rails-darwin",
    ),
    "pcapng → frames, working Wireshark dissector, HTML frame inspector.": (
        "traffic/#a-packet-capture-pcapng-and-wireshark",
        "reference/command-line/#stompcodec-inspect",
        "reference/command-line/#stompcodec-convert",
    ),
    "Record / replay of STOMP traffic with timing; proxy with faults.": ("proxy/", "traffic/"),
    "Header-injection-proof encoder and passcode redaction that works.": (
        "codec/",
        f"{_SYMPTOM}passcodes-appear-in-logs",
        f"{_SYMPTOM}escapes-are-wrong-or-missing-in-headers",
    ),
    'Handler stall detector: tells "your code blocked 12 s" instead of dropping the line.': (
        "client/#heart-beats",
        "client/#handlers",
        f"{_SYMPTOM}the-connection-is-cut-while-a-handler-or-listener-is-busy",
    ),
    "Streaming of large bodies in Python.": ("large-bodies/", "client/#receiving"),
    "Replayable source: `include-seq`/`from-seq` in a living broker.": ("broker-extensions/#on-subscribe",),
    "Conformance report for any broker or parser.": (
        "traffic/#a-broker-or-a-parser-against-the-rules",
        "conformance/",
    ),
    "OTel + Prometheus in the client itself.": ("tracing/",),
    "wss with subprotocol `v12.stomp` in asyncio Python.": ("client/#connecting",),
    "Free-threaded wheels and a documented thread-safety contract.": ("client/#threads",),
    "Migration linter: finds `auto_decode`, string `content-length`, name-ordered listeners… in a stomp.py code "
    "base.": (
        "compat/#problems-in-programs",
        "coming-from-stomp-py/",
    ),
}

#: What somebody might type who knows neither list.
WORDS: dict[str, tuple[str, ...]] = {
    "my connection is cut after a minute": (f"{_SYMPTOM}the-connection-is-cut-while-a-handler-or-listener-is-busy",),
    "consumer stops receiving messages after some hours": (f"{_SYMPTOM}a-consumer-stops-receiving-messages",),
    "messages delivered twice": (f"{_SYMPTOM}messages-are-delivered-twice",),
    "did my message arrive": (
        "client/#receipts-and-outcomes",
        f"{_SYMPTOM}messages-are-lost-when-sending-did-they-arrive",
    ),
    "UnicodeDecodeError in on_message": (f"{_SYMPTOM}compressed-bodies-arrive-as-garbage-gzip",),
    "unit test without a real broker": (f"{_SYMPTOM}a-test-needs-a-mock-broker", "testing/"),
    "ConnectionRefusedError": ("error-messages/#connecting",),
    "how do I connect to rabbitmq with ssl": ("rabbitmq/", "client/#connecting"),
    "virtual host not found": ("rabbitmq/", "broker/#virtual-hosts"),
    "send a file of several gigabytes": ("large-bodies/",),
    "delete all messages in a queue": ("queue-tools/", "management/#purge"),
    "dead letter queue": ("queue-tools/#dead-letters", "broker/#redelivery-and-dead-letters"),
    "slow consumer memory": ("broker/#slow-consumers-and-fast-producers",),
    "kubernetes liveness probe": ("client/#reconnecting",),
    "correlation id request reply": ("client/#requests-and-replies",),
    "durable subscription activemq": ("activemq/#durable-subscriptions",),
    "client certificate": ("client/#connecting",),
    "password from environment variable": ("cli/#login-and-passcode",),
    "spark exactly once": ("spark-semantics/", "spark-tutorial/", "promises/#exactly-once"),
    "install": ("tutorial/#install", "spark-tutorial/#install"),
    "prometheus": ("tracing/#prometheus",),
    "wireshark": ("traffic/#a-packet-capture-pcapng-and-wireshark",),
    "heartbeat timeout": (
        "client/#heart-beats",
        "compat/#stomppy-heart-beats-while-a-listener-blocks",
        f"{_SYMPTOM}heart-beats-time-out-although-the-broker-is-alive",
    ),
}
