"""A table of JSON values by key in an SQLite file, which several processes and threads read and write at one time."""

import json
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from emu.store import exposure, make_private

_WAIT_S = 30.0  # for another process that writes; a value that cannot be written by then is lost
# A value is written without waiting for the disk: what a crash of the machine loses is found again.
_SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL")
_TABLE = "CREATE TABLE IF NOT EXISTS timed (name TEXT PRIMARY KEY, found TEXT NOT NULL)"
_FRESH = "SELECT rowid, name, found FROM timed WHERE rowid > ? ORDER BY rowid"
_OLD = "DELETE FROM timed WHERE rowid <= (SELECT max(rowid) FROM timed) - ?"


class ValueTable:
    """JSON values by key, in a file or in memory.

    Each thread of each process has a connection of its own, which is opened when it is first used. A table that is sent to
    another machine, which has no such file, is empty and in memory there.
    """

    def __init__(self, path: Path | None, most: int = 0, *, private: bool = False) -> None:
        """Take a file as a table.

        Args:
            path: The file, which need not exist; None: the table is in memory, and only the thread that writes it can read it.
            most: The number of values that are kept, the last written; 0: all.
            private: Whether a folder that others could change is refused.
        """
        self.path, self._most, self._private = path, most, private
        self._own = threading.local()
        self._of_parent: list[sqlite3.Connection] = []  # opened before a fork: closing them here could harm the parent's
        self._given = 0  # the row up to which values were given to `fresh`

    def __reduce__(self) -> "tuple[type[ValueTable], tuple[None]]":
        return type(self), (None,)

    @property
    def _database(self) -> sqlite3.Connection:
        """The connection of this thread.

        Raises:
            OSError: the folder cannot be made, or others could change it.
            sqlite3.Error: the file cannot be opened, or is no database.
        """
        if getattr(self._own, "process", None) != os.getpid():
            self._of_parent += [self._own.opened] if hasattr(self._own, "opened") else []
            self._own.opened, self._own.process = self._open(), os.getpid()
        opened: sqlite3.Connection = self._own.opened
        return opened

    def _open(self) -> sqlite3.Connection:
        """Return a new connection to the table, which is made if it is missing."""
        if self.path is not None:
            make_private(self.path.parent)
            if self._private and (why := exposure(self.path.parent)):
                raise PermissionError(why)
        found = sqlite3.connect(self.path or ":memory:", _WAIT_S, isolation_level=None)
        for setting in (*_SETTINGS, _TABLE):
            found.execute(setting)
        return found

    def open(self) -> None:
        """Open the table now, so that a file that cannot be used is seen before work begins.

        Raises:
            OSError: the folder cannot be made.
            sqlite3.Error: the file cannot be opened, or is no database.
        """
        assert self._database

    def read(self, key: str) -> Any:
        """Return the value of a key; None if there is none, or if other processes hold the file for too long.

        Raises:
            OSError: the folder cannot be made, or others could change it.
            sqlite3.Error: the file cannot be opened, or is no database.
            ValueError: the value is no JSON.
        """
        row, database = None, self._database
        with suppress(sqlite3.OperationalError):
            row = database.execute("SELECT found FROM timed WHERE name = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def write(self, key: str, value: object) -> None:
        """Keep a value from now on; do nothing if other processes hold the file for too long.

        Raises:
            OSError: the folder cannot be made, or others could change it.
            sqlite3.Error: the file cannot be opened, or is no database.
        """
        database = self._database
        with suppress(sqlite3.OperationalError):
            database.execute("INSERT OR REPLACE INTO timed VALUES (?, ?)", (key, json.dumps(value)))
            if self._most:
                database.execute(_OLD, (self._most,))

    def fresh(self) -> list[tuple[str, Any]]:
        """Return the values by key that were written since this was last asked.

        Raises:
            OSError: the folder cannot be made, or others could change it.
            sqlite3.Error: the file cannot be opened, or is no database.
        """
        rows = self._database.execute(_FRESH, (self._given,)).fetchall()
        self._given = max((row for row, _, _ in rows), default=self._given)
        return [(name, json.loads(found)) for _, name, found in rows]

    def close(self) -> None:
        """Close the connection of this thread, if it has one."""
        if getattr(self._own, "process", None) == os.getpid():
            self._own.opened.close()
            self._own.process = None
            del self._own.opened
