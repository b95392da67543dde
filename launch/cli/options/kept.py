"""`--checkpoint` and `--elastic` of `emu train`: what is trained is kept in a folder, and a job goes on from there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.cluster.pace.pace import Pace
from emu.errors import InputError
from emu.study.live.disturbed import Disturbed
from emu.study.live.train import Keeping, train_kept
from emu.study.training.train import TrainRequest
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.cli.options.common import calls_of, with_options
from launch.cli.options.outputs import OutputFolder
from launch.clusters import Where
from launch.show.progress import progress_bar

_CHECKPOINT = "Keep what is trained in this folder (PyTorch's DCP), and begin with what is there; older steps go."


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    folder: Path | None
    every: int
    elastic: bool

    @property
    def given(self) -> tuple[str, ...]:
        """The flag that makes a run one that is kept, if it is there."""
        return () if self.folder is None else ("--checkpoint",)

    def check(self, topologies: Sequence[str], *, paced: bool, lossy: bool) -> None:
        """Refuse what makes no sense together.

        Args:
            topologies: Of the job.
            paced: Whether it meets its fabric by this host's clock.
            lossy: Whether there are faults.

        Raises:
            InputError: naming the flag.
        """
        if self.folder is None and (self.elastic or self.every != 1):
            flag = "--elastic" if self.elastic else "--checkpoint-every"
            raise InputError(f"{flag}: must have a folder for checkpoints beside it; add --checkpoint DIR")
        if self.folder is not None and len(topologies) > 1:
            raise InputError(f"--checkpoint: the job runs on one --topology, got {len(topologies)}; take one")
        if self.folder is not None and paced and (lossy or self.elastic):
            flag = "--elastic" if self.elastic else "--fault"
            raise InputError(f"--pace: a job that is kept must have no {flag} by this host's clock; leave --pace or {flag} out")

    def beside(self, trace: Path | None) -> dict[str, object]:
        """What is not told of such a run, by flag."""
        return {"--trace": trace} if self.given else {}

    def trained(
        self,
        request: TrainRequest,
        topology: str,
        device: Device,
        faults: Sequence[str],
        where: Where,
        stack: str,
        pace: Pace | None,
    ) -> Disturbed:
        """Run it.

        Raises:
            InputError: as `train_kept`.
            RunError: as `train_kept`.
        """
        assert self.folder is not None
        keeping = Keeping(self.folder, self.every, self.elastic, where.cluster == "ray")
        built, under = build_topology(topology), calls_of(stack)
        with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"), where.opened(pace=pace) as cluster:
            return train_kept(request, keeping, built, device, faults, under, cluster.record)


def keep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--checkpoint`, `--checkpoint-every` and `--elastic`; the command takes them as one `Asked`."""

    @wraps(command)
    def called(*given: Any, checkpoint: Path | None, checkpoint_every: int, elastic: bool, **rest: Any) -> Any:
        return command(*given, keeping=Asked(checkpoint, checkpoint_every, elastic), **rest)

    return with_options(
        called,
        click.option("--checkpoint", type=OutputFolder(), help=_CHECKPOINT),
        click.option("--checkpoint-every", type=int, default=1, show_default=True, metavar="STEPS", help="Of --checkpoint."),
        click.option("--elastic", is_flag=True, help="Go on from the last --checkpoint where a --fault takes a rank."),
    )
