"""SQLite's files as they are on the disk: pages and write-ahead log, read without SQLite."""
