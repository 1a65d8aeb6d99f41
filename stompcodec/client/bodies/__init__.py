"""Bodies that are never in memory as a whole: those that are sent from a source, and those that are received."""
