"""A cache of timed results between commands, in SQLite: an interrupted search goes on where it stopped.

A row is named by a digest of all inputs of its figures, with the code of Emu and of users. So an entry never goes stale.
"""

import sqlite3
from pathlib import Path

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import Model
from emu.model.stack.stack import Stack
from emu.sources import code_digest
from emu.study.planning.search.timer import Job, RequestJob
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.value_table import ValueTable

_FILE = "plans.sqlite"


class ResultCache(ValueTable):
    """A cache of results by name, in a folder or in memory."""

    def __init__(self, folder: Path | None) -> None:
        """Open the cache.

        Raises:
            InputError: the folder cannot be written, or its file is no database.
        """
        super().__init__(None if folder is None else folder / _FILE)
        try:
            self.open()
        except (OSError, sqlite3.Error) as error:
            where = f"a folder that can be written, without another {_FILE}"
            raise InputError(f"plan: cache must be {where}, got {str(folder)!r} ({error}); take another --cache") from None


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
