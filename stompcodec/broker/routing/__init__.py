"""Routing: which destinations there are, and where a message goes."""
