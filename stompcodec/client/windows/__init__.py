"""Windows of subscriptions: how many messages a broker delivers ahead."""
