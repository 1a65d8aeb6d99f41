"""Recording subscriptions into a capture: messages are acknowledged once they are on disk; duplicates are left out."""
