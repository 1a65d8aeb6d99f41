"""A subscription into a capture: recording, acknowledging behind the disk, leaving out duplicates."""
