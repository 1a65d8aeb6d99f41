"""Selectors: conditions on messages, in the SQL 92 syntax of JMS."""
