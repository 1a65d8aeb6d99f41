"""Frames that several tests look at: a repeated name, escapes, an empty value, letters beyond ASCII."""

PAIRS = [("destination", "/queue/a"), ("id", "1"), ("destination", "/queue/b"), ("é", "東:\n"), ("x-y", ""), ("id", "")]
WIRE = "SEND\ndestination:/queue/a\nid:1\ndestination:/queue/b\né:東\\c\\n\nx-y:\nid:\n\nhello\0".encode()
SEND = b"SEND\ndestination:/queue/a\n\nhello\0"
