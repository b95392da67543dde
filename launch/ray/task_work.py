"""The function of a pool's jobs in the form that Ray workers run, with the user's registered things."""

import importlib
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emu.errors import EmuError, InputError, RunError
from emu.registry import file_things, has_own, load_catalogue, own_things
from emu.sources import product_digest, take_users_digest, user_modules, users_digest
from emu.store import ValueTable
from emu.study.choice import algorithm_cache
from launch.ray.process import pickled_by_value

_LAUNCH = Path(__file__).parents[1]
# Modules in which users' things are filed.
_FILED = (
    "emu.collective.algorithm",
    "emu.collective.libraries",
    "emu.model.model",
    "emu.topology.catalogue",
    "launch.data.devices",
)


class TaskWork:
    """The function that does the jobs of a pool, pickled for Ray's workers together with the user's own catalogue entries.

    A call runs one pickled job.

    Args:
        work: The function that does one job.
        kept: The table in which the function keeps values. It begins empty on a worker; its new values come back with each
            result. None: the function keeps none.

    Raises:
        InputError: The function or an entry of the user's cannot be pickled.
    """

    def __init__(self, work: Callable[[Any], Any], kept: ValueTable | None) -> None:
        self._product, self._users = product_digest(_LAUNCH), users_digest()
        try:
            self._own, self._work = by_value(own_things()), by_value((work, kept))
        except Exception as error:  # whatever the user's code holds
            mend = "leave --workers ray out, or hold no such object in what you file"
            raise InputError(f"--workers: what you have filed cannot be sent to a Ray ({error}); {mend}") from error
        self._begun: tuple[Callable[[Any], Any], ValueTable | None] | None = None

    def __call__(self, job: bytes) -> tuple[str, bytes]:
        """Run a job; return "done" with its pickled result and new cached values, or "failed" with the pickled error."""
        try:
            self._begun = self._begun or self._begin()
            work, kept = self._begun
            found = work(pickle.loads(job))
            return "done", by_value((found, [] if kept is None else kept.fresh()))
        except Exception as error:  # it goes on where the result is wanted
            return "failed", _pickled_error(error)

    def _begin(self) -> tuple[Callable[[Any], Any], ValueTable | None]:
        """Prepare this process for the work, and return the work's function with its table.

        Raises:
            InputError: the code of Emu is another one here.
        """
        if product_digest(_LAUNCH) != self._product:
            raise InputError("--ray-address: a node of this Ray has other code of Emu; install the same version on every node")
        for module in _FILED:
            importlib.import_module(module)
        for package in ("collectives", "topologies", "models"):
            load_catalogue(package)
        file_things(pickle.loads(self._own))
        take_users_digest(self._users)
        algorithm_cache.keep_in(None if has_own() else algorithm_cache.user_table())
        begun: tuple[Callable[[Any], Any], ValueTable | None] = pickle.loads(self._work)
        return begun


def by_value(thing: object) -> bytes:
    """Return an object pickled to bytes, with the user's code by value."""
    return pickled_by_value(thing, user_modules())


def _pickled_error(error: Exception) -> bytes:
    """Return an error pickled to bytes; one that cannot be pickled becomes a `RunError`."""
    if not isinstance(error, EmuError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        told = by_value(error)
        pickle.loads(told)
    except Exception:
        return by_value(RunError(f"{type(error).__name__}: {error}"))
    return told
