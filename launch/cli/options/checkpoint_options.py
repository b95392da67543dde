"""The options `--checkpoint`, `--checkpoint-every` and `--elastic` of `emu train`: jobs that go on from a checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.cluster.pace.timeliness import Pace
from emu.errors import InputError
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.train import TrainRequest
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.cli.options.common import calls_of, with_options
from launch.cli.options.outputs import OutputFolder
from launch.clusters import ClusterOptions
from launch.show.progress import progress_bar

_CHECKPOINT = "Save checkpoints (PyTorch's DCP) to this folder, and begin from the last one there; older ones are removed."


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The values of the options for checkpoints."""

    folder: Path | None
    every: int
    elastic: bool

    @property
    def given(self) -> tuple[str, ...]:
        """The flag `--checkpoint`, if it was given."""
        return () if self.folder is None else ("--checkpoint",)

    def check(self, topologies: Sequence[str], *, paced: bool, lossy: bool) -> None:
        """Refuse options that do not fit together.

        Args:
            topologies: The topologies of the job.
            paced: Whether virtual time runs by the clock of this host.
            lossy: Whether there are faults.

        Raises:
            InputError: naming the option.
        """
        if self.folder is None and (self.elastic or self.every != 1):
            flag = "--elastic" if self.elastic else "--checkpoint-every"
            raise InputError(f"{flag}: needs a folder for checkpoints; add --checkpoint DIR")
        if self.folder is not None and len(topologies) > 1:
            raise InputError(f"--checkpoint: must have one --topology, got {len(topologies)}; leave the others out")
        if self.folder is not None and paced and (lossy or self.elastic):
            flag = "--elastic" if self.elastic else "--fault"
            raise InputError(f"--pace: must be given without {flag} where --checkpoint is given; leave --pace or {flag} out")

    def beside(self, trace: Path | None) -> dict[str, object]:
        """Return the options that a job with checkpoints cannot have, by flag."""
        return {"--trace": trace} if self.given else {}

    def run_job(
        self,
        request: TrainRequest,
        topology: str,
        device: Device,
        faults: Sequence[str],
        where: ClusterOptions,
        stack: str,
        pace: Pace | None,
    ) -> FaultyJob:
        """Run the job, and return its steps.

        Raises:
            InputError: as `train_with_checkpoints`.
            RunError: as `train_with_checkpoints`.
        """
        assert self.folder is not None
        keeping = CheckpointPolicy(self.folder, self.every, self.elastic, where.cluster == "ray")
        built, under = build_topology(topology), calls_of(stack)
        with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"), where.open_cluster(pace=pace) as cluster:
            return train_with_checkpoints(request, keeping, built, device, faults, under, cluster.record)


def keep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for checkpoints to a command, which takes them as one `CheckpointOptions`."""

    @wraps(command)
    def called(*given: Any, checkpoint: Path | None, checkpoint_every: int, elastic: bool, **rest: Any) -> Any:
        return command(*given, keeping=CheckpointOptions(checkpoint, checkpoint_every, elastic), **rest)

    return with_options(
        called,
        click.option("--checkpoint", type=OutputFolder(), help=_CHECKPOINT),
        click.option(
            "--checkpoint-every", type=int, default=1, show_default=True, metavar="STEPS", help="Steps between checkpoints."
        ),
        click.option(
            "--elastic",
            is_flag=True,
            help="After a --fault that ends a rank, go on from the last --checkpoint on the NPUs that are left.",
        ),
    )
