"""A cache of chosen algorithms in the user's cache folder, so that no command repeats a search.

A key is a digest of the fabric, of all other inputs and of all code that decides, also that of users. So an entry never goes
stale.
"""

import sqlite3
from contextlib import suppress
from typing import Any

from emu.arrays import digest
from emu.sources import code_digest
from emu.store import ValueTable, user_folder
from emu.topology.topology import Topology

_MOST = 2**16  # choices that are kept, the last made
_TABLES: list[ValueTable] = []  # the table in use: one or none


def keep_in(table: ValueTable | None) -> None:
    """Store choices of algorithms in a table from now on; None: do not store them.

    Choices must not be kept where code of users reads files: the key of a choice has a hash of all code that decides, and this
    hash does not change when such a file changes.
    """
    for last in _TABLES:
        last.close()
    _TABLES[:] = [] if table is None else [table]


def user_table() -> ValueTable:
    """Return the table of chosen algorithms in the user's cache folder."""
    return ValueTable(user_folder() / "choices" / "choices.sqlite", _MOST, private=True)


def recall_entry(topology: Topology, key: str) -> Any:
    """Return the cache entry of a topology under a key, which is a digest of all other inputs; None if there is none."""
    for table in _TABLES:
        try:
            return table.read(_whole_key(topology, key))
        except (OSError, sqlite3.Error) as error:
            _give_up(table, error)
        except ValueError:  # another program wrote it
            break
    return None


def keep_entry(topology: Topology, key: str, value: object) -> None:
    """Store a JSON value for a topology under a key; do nothing if the table cannot be written."""
    for table in _TABLES:
        try:
            table.write(_whole_key(topology, key), value)
        except (OSError, sqlite3.Error) as error:
            _give_up(table, error)


def _give_up(table: ValueTable, error: Exception) -> None:
    """Stop storing choices in this process after an error; delete the file of the table if it is damaged."""
    keep_in(None)
    if table.path is not None and not isinstance(error, OSError | sqlite3.OperationalError):
        with suppress(OSError):
            table.path.unlink()


def _whole_key(topology: Topology, key: str) -> str:
    """Return the full key of an entry: a digest of the key, the topology and all code on which choices depend."""
    return digest((code_digest(), topology.digest(), key))
