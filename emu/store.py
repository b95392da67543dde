"""Files that Emu stores for itself between commands, in the user's cache folder, up to a size limit for each kind.

A file is named by the digest of what it was made from. So it never goes stale, two processes that write the same file write the
same bytes, and any file may be deleted at any time. Files are read only where no other user can have written them.

A table of JSON values by key in an SQLite file, which several processes and threads read and write at one time.
"""

import hashlib
import json
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.files import replace_file

_CHECK_BYTES = 16  # in front of each file


def _check(data: bytes) -> bytes:
    """Return a digest of stored bytes; if they are damaged later, it no longer fits."""
    return hashlib.blake2b(data, digest_size=_CHECK_BYTES).digest()


def user_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the cache folder of Emu on this platform; XDG_CACHE_HOME overrides it."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is none
    places = {"darwin": home / "Library" / "Caches", "win32": Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")}
    return Path(environ.get("XDG_CACHE_HOME") or places.get(platform, home / ".cache")) / "emu"


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, readable and writable by this user only.

    Raises:
        OSError: one cannot be made.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def exposure(folder: Path) -> str:
    """Return the reason why other users could change the content of a folder; "" if they could not.

    The folder must be the user's, and nobody else may write it or replace it. The folders above must be the user's or the owner
    of /'s, and others may not write them, but for one such as /tmp, where nobody can replace another's files.
    """
    if sys.platform == "win32":  # where a user's folders are the user's alone, and modes say nothing
        return ""
    whole = folder.resolve()
    owners, sticky = {os.geteuid()}, 0
    try:
        for each in (whole, *whole.parents):
            found = each.stat()
            if found.st_uid not in owners:
                return f"{each} is of another user"
            if _others_write(found) and not found.st_mode & sticky:
                return f"others may write {each}: chmod go-w it"
            owners, sticky = {os.geteuid(), Path(whole.anchor).stat().st_uid}, stat.S_ISVTX
    except OSError as error:
        return str(error)
    return ""


def _others_write(found: os.stat_result) -> bool:
    """Return whether users other than the owner may write the file; a group of the owner alone does not count."""
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bool(writers) and not (writers == stat.S_IWGRP and _is_own_group(found.st_gid))


def _is_own_group(gid: int) -> bool:
    """Return whether a group of the system has the user's name and no other member; False for the user root."""
    import grp  # Windows has neither
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    names = {group.gr_name, *group.gr_mem}
    return user.pw_uid != 0 and user.pw_gid == gid and names == {user.pw_name}


@dataclass(frozen=True)
class Store:
    """A folder of cached files; the least recently used ones are deleted beyond `most_bytes` bytes."""

    folder: Path
    most_bytes: int

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is missing or damaged, or if other users can have written it."""
        try:
            with (self.folder.resolve() / name).open("rb") as file:
                if not self._is_own(os.fstat(file.fileno())):
                    return None
                stored = file.read()
        except OSError:
            return None
        self._touch(name)
        data = stored[_CHECK_BYTES:]
        return data if stored[:_CHECK_BYTES] == _check(data) else None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically.

        Raises:
            OSError: The folder cannot be made or written, or others could change its content.
        """
        make_private(self.folder)
        if why := exposure(self.folder):
            raise PermissionError(why)
        replace_file(self.folder / name, _check(data) + data, 0o600)
        self._make_room()

    def _is_own(self, found: os.stat_result) -> bool:
        """Return whether no other user can have written an open file or changed the names in its folder."""
        if sys.platform == "win32":
            return True
        return found.st_uid == os.geteuid() and not _others_write(found) and not exposure(self.folder)

    def _touch(self, name: str) -> None:
        """Set the time of last use of a file to now; errors are ignored."""
        try:
            os.utime(self.folder / name)
        except OSError:
            return

    def _make_room(self) -> None:
        """Delete the least recently used files beyond the limit, and unfinished drafts with them."""
        total = 0
        for _, size, path in sorted(self._files(), reverse=True):
            total += size
            if total > self.most_bytes:
                Path(path).unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, str]]:
        """Return the time of use, the bytes and the path of each file, without files that another process deletes right now."""
        files = []
        with os.scandir(self.folder) as found:
            for file in found:
                try:
                    stat = file.stat()
                except OSError:
                    continue
                files.append((stat.st_mtime, stat.st_size, file.path))
        return files


_WAIT_S = 30.0  # for another process that writes; a value that cannot be written by then is lost
_RETRY_S = 0.01
# A value is written without waiting for the disk: what a crash of the machine loses is found again.
_SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL")
_TABLE = "CREATE TABLE IF NOT EXISTS timed (name TEXT PRIMARY KEY, found TEXT NOT NULL)"
_FRESH = "SELECT rowid, name, found FROM timed WHERE rowid > ? ORDER BY rowid"
_OLD = "DELETE FROM timed WHERE rowid <= (SELECT max(rowid) FROM timed) - ?"


def _prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection; wait while another process sets up the same file.

    SQLite's own waiting does not cover a change of the journal's mode: it fails at once where two processes open a new file.

    Raises:
        sqlite3.Error: the file is no database, or other processes lock it for too long.
    """
    last = time.monotonic() + _WAIT_S
    while True:
        try:
            for setting in (*_SETTINGS, _TABLE):
                connection.execute(setting)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
        time.sleep(_RETRY_S)


class ValueTable:
    """JSON values by key, in a file or in memory.

    Each thread of each process has a connection of its own, which is opened when it is first used. A table that is sent to
    another machine, which has no such file, is empty and in memory there.
    """

    def __init__(self, path: Path | None, most: int = 0, *, private: bool = False) -> None:
        """Make a table of a file; the file is opened when it is first used.

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
        """The database connection of the present thread, opened when needed.

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
        """Open a new connection to the table and return it; a missing file is created."""
        if self.path is not None:
            make_private(self.path.parent)
            if self._private and (why := exposure(self.path.parent)):
                raise PermissionError(why)
        connection = sqlite3.connect(self.path or ":memory:", _WAIT_S, isolation_level=None)
        _prepare(connection)
        return connection

    def open(self) -> None:
        """Open the table now, so that an unusable file is found before work begins.

        Raises:
            OSError: the folder cannot be made.
            sqlite3.Error: the file cannot be opened, or is no database.
        """
        assert self._database

    def read(self, key: str) -> Any:
        """Return the value of a key; None if there is none, or if other processes lock the file for too long.

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
        """Store a value under a key; do nothing if other processes lock the file for too long.

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
        """Return the keys and values that were written since the last call.

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
