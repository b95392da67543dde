"""A cache of timed results between commands, in SQLite: an interrupted search goes on where it stopped.

A row is named by a digest of all inputs of its figures, with the code of Emu and of users. So an entry never goes stale.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import Model
from emu.model.stack.stack import Stack
from emu.sources import code_digest
from emu.store import make_private
from emu.study.planning.search.timer import Job, RequestJob
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.topology.topology import Topology
from emu.trace.device.device import Device

_FILE = "plans.sqlite"
_WAIT_S = 30.0  # for another search that reads or writes; what cannot be kept by then is found again
# A result is written down without waiting for the disk: what a crash of the machine loses is found again.
_SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL")
_TABLE = "CREATE TABLE IF NOT EXISTS timed (name TEXT PRIMARY KEY, found TEXT NOT NULL)"


class ResultCache:
    """A cache of results by name, in a folder or in memory."""

    def __init__(self, folder: Path | None) -> None:
        """Open the cache.

        Raises:
            InputError: the folder cannot be written, or its file is no database.
        """
        try:
            if folder is not None:
                make_private(folder)
            self._database = sqlite3.connect(":memory:" if folder is None else folder / _FILE, _WAIT_S, isolation_level=None)
            for setting in _SETTINGS:
                self._database.execute(setting)
            self._database.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            where = f"a folder that can be written, without another {_FILE}"
            raise InputError(f"plan: cache must be {where}, got {str(folder)!r} ({error}); take another --cache") from None

    def read(self, name: str) -> Any:
        """Return the result of a name; None if there is none, or if other processes hold the file for too long."""
        row = None
        with suppress(sqlite3.OperationalError):
            row = self._database.execute("SELECT found FROM timed WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def write(self, name: str, found: Mapping[str, Any]) -> None:
        """Keep a result from now on; do nothing if other processes hold the file for too long."""
        with suppress(sqlite3.OperationalError):
            self._database.execute("INSERT OR REPLACE INTO timed VALUES (?, ?)", (name, json.dumps(found)))

    def close(self) -> None:
        """Close the cache; nothing is read or written afterwards."""
        self._database.close()


class ResultNames:
    """The names of the results of one search."""

    def __init__(
        self, model: Model, stack: Stack, device: Device, algorithms: tuple[str, ...], topologies: tuple[Topology, ...]
    ) -> None:
        self._steps = digest((code_digest(), model.digest(), stack, device, algorithms))
        self._requests = digest((code_digest(), device_under(stack, device).request_overhead_fs, algorithms))
        self._plain = [each.digest() for each in topologies]
        self._under = [topology_under(stack, each).digest() for each in topologies]

    def of(self, job: Job) -> str:
        """Return the name of a job's result; the name of a request is equal in all searches."""
        if isinstance(job, RequestJob):
            return "request " + digest((self._requests, self._under[job.topology], *job.request.name))
        topology, plan, axes = job.candidate
        return "step " + digest((self._steps, self._plain[topology], repr(plan), axes, job.how))
