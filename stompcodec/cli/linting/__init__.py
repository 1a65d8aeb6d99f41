"""Checks of frames and conversations, and the titles of their rules."""
