"""A connection to SQLite whose commits fail after they were written."""

import sqlite3
from typing import Any


class Unsure:
    """A connection whose COMMIT succeeds and reports a failure, as when the last fsync fails."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        result = self.connection.execute(statement, *values)
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return result
