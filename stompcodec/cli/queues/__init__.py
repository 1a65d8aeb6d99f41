"""Tools for queues, over plain STOMP: look at messages, move them, remove them. docs/queue-tools.md is the guide."""
