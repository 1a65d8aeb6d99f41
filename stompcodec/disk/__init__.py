"""Permissions of the files and folders that hold messages."""
