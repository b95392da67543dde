"""The cache of a search's results, and the names that they have there.

The cache is in SQLite, so that an interrupted search goes on where it stopped. A result is named by a digest of all inputs of
its figures, with the code of Emu and of users. So an entry never goes stale.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import Model
from emu.model.stack.stack import Stack
from emu.sources import code_digest
from emu.store import ValueTable
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.search.search_jobs import Job, JobResult, JobWorker, RequestJob
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device

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


def do_and_store(worker: JobWorker, kept: ResultCache, name_of: Callable[[Job], str], job: Job) -> JobResult:
    """Do a job, and return its result after writing it to the cache: no interruption loses a result that was reported.

    Args:
        worker: The object that does the job.
        kept: The cache.
        name_of: A function that gives the name of a job's result in the cache.
        job: The job.
    """
    found = worker(job)
    kept.write(name_of(job), found)
    return found


def search_name(request: PlanRequest, model: Model, device: Device, topologies: tuple[Topology, ...]) -> str:
    """Return the name under which the cache stores the state of a search."""
    asked, machines = replace(request, model=model.digest(), beside=()), [each.digest() for each in topologies]
    return "search " + digest((code_digest(), asked, device, machines))


def result_namer(
    model: Model, stack: Stack, device: Device, algorithms: tuple[str, ...], topologies: tuple[Topology, ...]
) -> Callable[[Job], str]:
    """Return a function that gives the cache name of a job's result; requests have equal names in all searches."""
    steps = digest((code_digest(), model.digest(), stack, device, algorithms))
    requests = digest((code_digest(), costed_device(stack, device).request_overhead_fs, algorithms))
    plain, under = [each.digest() for each in topologies], [costed_topology(stack, each).digest() for each in topologies]

    def name_of(job: Job) -> str:
        if isinstance(job, RequestJob):
            return "request " + digest((requests, under[job.topology], *job.request.name))
        topology, plan, axes = job.candidate
        return "step " + digest((steps, plain[topology], repr(plan), axes, job.effort))

    return name_of
