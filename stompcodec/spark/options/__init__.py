"""Options of readers and writers, as tables that also check them."""
