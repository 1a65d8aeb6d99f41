"""Checks of frames and conversations for `lint`, and the titles of their rules."""
