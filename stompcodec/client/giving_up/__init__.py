"""Giving a message up that cannot be handled."""
