"""Options of readers and writers: tables, and the parsers that check them."""
