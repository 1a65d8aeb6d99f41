"""Readers of SQLite's files, pages and write-ahead log, that do not use SQLite."""
