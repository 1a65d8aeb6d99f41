"""The I/O of all clients of a process, in one thread."""
