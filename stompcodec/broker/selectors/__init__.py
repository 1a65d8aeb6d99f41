"""Selectors: which messages a subscription wants, in the SQL 92 of JMS."""
