"""Queues: ordered messages, their consumers, and who gets what."""
