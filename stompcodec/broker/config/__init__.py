"""Configuration: the file, the table of its keys, and the defaults of each dialect."""
