"""Writing: rows become SEND frames, which each task sends over a connection of its own."""
