"""The checkpoints of a job in a folder, one for each step; older ones are removed when a newer one is complete.

`step-3/` has the files that DCP writes, `.metadata` last; `job.json` says which job it is; `loss-R.json` is of rank R.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from emu.backend.rank.operator_counter import pause_counting
from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.model.model import Model
from emu.model.plan.plan import Plan

_WHOLE = ".metadata"  # the file that DCP writes last


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The folder in which a job saves a checkpoint after every `every` steps, with a description of the job and its losses."""

    folder: str
    every: int  # steps between two checkpoints
    job: Mapping[str, Any]  # the description of the job, as JSON
    before: tuple[float, ...] = ()  # the losses of the steps before this run

    def of_step(self, step: int) -> Path:
        """Return the folder of the checkpoint after a step."""
        return Path(self.folder) / f"step-{step}"

    def after(self, step: int) -> bool:
        """Return whether a checkpoint is due after a step."""
        return step % self.every == 0

    def write(self, step: int, rank: int, ranks: int, losses: Sequence[float]) -> None:
        """Write the description of the job and the losses of this rank to the folder of a step, before the checkpoint itself.

        Raises:
            WriteError: The disk is full, or the folder is gone.
        """
        folder = self.of_step(step)
        make_folder("--checkpoint", folder)
        write_file("--checkpoint", folder / f"loss-{rank}.json", json.dumps(list(losses)).encode())
        if rank == 0:
            job = {**self.job, "ranks": ranks, "loss": self.before}
            write_file("--checkpoint", folder / "job.json", json.dumps(job).encode())

    def drop_before(self, step: int, rank: int) -> None:
        """Remove older checkpoints if the checkpoint of `step` is complete; only rank 0 does so."""
        if rank == 0 and (self.of_step(step) / _WHOLE).exists():
            for number, folder in _steps(Path(self.folder)):
                if number < step:
                    shutil.rmtree(folder, ignore_errors=True)


def job_of(model: Model, plan: Plan, **more: object) -> dict[str, Any]:
    """Return the description of a job that its checkpoints store: the model's name and sizes, and the plan.

    Args:
        model: The model.
        plan: The plan.
        **more: Further entries of the description.
    """
    sizes = {name: getattr(model, name) for name in ("hidden", "heads", "vocab")} | {"parameters": model.parameters()}
    config: Any = model.config
    known = [each.name for each in fields(config) if each.name != "source"] if is_dataclass(config) else []
    own = {f"{name} of the model": repr(getattr(config, name)) for name in known}
    return {"model": Path(model.name).name, **sizes, **own, **asdict(plan), "layers": list(plan.layers), **more}


def last(folder: Path, job: Mapping[str, Any]) -> tuple[int, tuple[float, ...]] | None:
    """Return the step of the last complete checkpoint of a job, and the loss of each step; None if there is none.

    Checkpoints that were cut off are removed.

    Raises:
        InputError: A checkpoint lacks data, or belongs to a job that differs in more than its dp.
    """
    whole = None
    for step, each in sorted(_steps(folder)):
        if (each / _WHOLE).exists():
            whole = step, each
        else:
            shutil.rmtree(each, ignore_errors=True)
    if whole is None:
        return None
    step, each = whole
    written = _read(each, "job.json")
    for name, value in job.items():
        if name != "dp" and written.get(name) != value:
            raise InputError(
                f"--checkpoint: {str(folder)!r} has a checkpoint of another plan: {name} is {written.get(name)!r} there, "
                f"and {value!r} here; take that, or another folder"
            )
    _check_whole(each)
    losses = [_read(each, f"loss-{rank}.json") for rank in range(written["ranks"])]
    return step, (*written["loss"], *mean_loss(losses))


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """Return the step and the folder of each checkpoint."""
    found = folder.glob("step-*") if folder.is_dir() else ()
    return [(int(each.name[5:]), each) for each in found if each.name[5:].isdecimal()]


def _read(folder: Path, name: str) -> Any:
    """Return the content of a JSON file of a checkpoint; raise an input error if it is missing or cut off."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _cut_off(folder, name) from None


def _check_whole(folder: Path) -> None:
    """Check that all files of a checkpoint exist in full length."""
    with pause_counting():  # it loads DCP, and operators run while it loads
        from emu.model.parallel.checkpoint import read_metadata
    try:
        metadata = read_metadata(folder)
        ends: dict[str, int] = {}
        for info in metadata.storage_data.values():
            ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
    except InputError:
        raise
    except Exception:  # whatever bytes that are no pickle raise
        raise _cut_off(folder, _WHOLE) from None
    for name, size in ends.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size < size:
            raise _cut_off(folder, name)


def _cut_off(folder: Path, name: str) -> InputError:
    """Return the error for a checkpoint that is cut off."""
    return InputError(
        f"--checkpoint: {str(folder)!r} is cut off: {name} is gone, or not whole; remove it, or take another folder"
    )


def mean_loss(of_ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return [steps] the mean loss over ranks, given the losses of each rank; ranks without the last stage have no loss."""
    told = [losses for losses in of_ranks if losses]
    return tuple(sum(step) / len(told) for step in zip(*told, strict=True))
