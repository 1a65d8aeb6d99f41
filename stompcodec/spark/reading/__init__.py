"""Reading: the source "stompfile", from paths and offsets to batches of columns."""
