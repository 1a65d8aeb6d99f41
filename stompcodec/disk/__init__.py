"""The disk: rights of the files and folders that hold messages."""
