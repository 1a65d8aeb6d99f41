"""Data folders as older versions left them, made from one of this version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["downgrade"]

#: What takes back each migration, newest first: the version that it leads to, and the statements.
_STEPS = (
    (5, ("DROP TABLE IF EXISTS filling", "DROP TABLE special")),
    (4, ("DROP TABLE sent",)),
    (
        3,
        (
            *(f"ALTER TABLE {table} DROP COLUMN crc" for table in ("message", "queue", "subscription", "state")),
            *(f"ALTER TABLE queue DROP COLUMN {name}" for name in ("count", "high")),
            "ALTER TABLE state DROP COLUMN subscriptions",
        ),
    ),
    (2, ("ALTER TABLE subscription DROP COLUMN owner",)),
)


def downgrade(folder: Path, version: int) -> None:
    """Make a closed store one of an older version, 2 to 5, with the messages that it holds."""
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for before, statements in _STEPS:
            if before >= version:
                for statement in statements:
                    connection.execute(statement)
        connection.execute("DELETE FROM migration WHERE version > ?", (version,))
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
