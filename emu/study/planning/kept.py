"""What was timed, kept between commands in SQLite: a search that was interrupted goes on where it stopped.

A row is named by a digest of all that its figures follow from, Emu's own code too, so that it never goes stale.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import Tokens
from emu.model.stack import Stack
from emu.study.choice.kept import code
from emu.study.planning.row import Candidate
from emu.topology.topology import Topology
from emu.trace.device.device import Device

_FILE = "plans.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS timed (name TEXT PRIMARY KEY, found TEXT NOT NULL)"


class Kept:
    """Results by name in a folder; without one in memory."""

    def __init__(self, folder: Path | None) -> None:
        """Open it.

        Raises:
            InputError: the folder cannot be written, or its file is no database.
        """
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(":memory:" if folder is None else folder / _FILE, isolation_level=None)
            self._database.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            where = f"a folder that can be written, without another {_FILE}"
            raise InputError(f"plan: cache must be {where}, got {str(folder)!r} ({error}); take another --cache") from None

    def read(self, name: str) -> Any:
        """What was found; None: nothing is kept."""
        row = self._database.execute("SELECT found FROM timed WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def write(self, name: str, found: Mapping[str, Any]) -> None:
        """Keep it from now on, whatever happens next."""
        self._database.execute("INSERT OR REPLACE INTO timed VALUES (?, ?)", (name, json.dumps(found)))

    def close(self) -> None:
        """Nothing is read or written any more."""
        self._database.close()


class Names:
    """Names of the results of one search."""

    def __init__(
        self, model: Model, stack: Stack, device: Device, algorithms: tuple[str, ...], topologies: tuple[Topology, ...]
    ) -> None:
        parts = (model.part(name, Tokens(1)) for name in dict.fromkeys((EMBEDDING, *model.kinds, HEAD)))
        sizes = (model.name, model.kinds, model.tied, model.vocab, *parts)
        self._same = digest((code(), *sizes, *astuple(stack), repr(device), algorithms))
        self._topologies = [digest((each.digest(), each.adds, each.circuits is None)) for each in topologies]

    def of(self, candidate: Candidate, how: str) -> str:
        """The name of one, timed so."""
        return digest((self._same, self._topologies[candidate.topology], repr(candidate.plan), candidate.axes, how))
