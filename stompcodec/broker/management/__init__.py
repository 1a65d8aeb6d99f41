"""Management: questions about a running broker, and orders to it, over STOMP, HTTP or in process."""
