"""The data, HTML page and terminal output of `inspect`."""
