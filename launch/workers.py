"""Where the jobs of a command are done: by processes of this machine, or by tasks of a Ray."""

import importlib
from dataclasses import dataclass

from emu.errors import must_be
from emu.study.job_pool import JobPool

WORKERS = ("local", "ray")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The processes that do the jobs of a command, as options and arguments give them.

    Raises:
        InputError: the kind of processes is unknown, or an address is given without Ray.
    """

    workers: str = "local"
    ray_address: str | None = None

    def __post_init__(self) -> None:
        if self.workers not in WORKERS:
            raise must_be("", "--workers", " or ".join(WORKERS), self.workers)
        if self.ray_address is not None and self.workers != "ray":
            raise must_be("--ray-address", "--workers", "ray with this option", self.workers, "add --workers ray")

    def pool(self, label: str, local: JobPool) -> JobPool:
        """Return the pool that does the jobs.

        Args:
            label: The beginning of the names of tasks of a Ray.
            local: The pool of this machine.
        """
        if self.workers == "local":
            return local
        made: JobPool = importlib.import_module("launch.ray.ray_pool").RayPool(label, self.ray_address)  # it loads Ray
        return made
