"""Constants of devices that were fitted on published runs: launch/data/measured/fitted.json, by `emu repro measured --fit`."""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from emu.files import write_file

DATA = Path(__file__).with_name("measured")
FITTED = DATA / "fitted.json"
CLOCK = DATA / "clock.json"


@dataclass(frozen=True, slots=True)
class Blind:
    """The mean and the worst error of step times on models that a fit on the other half of the models has not seen.

    They are over several random draws of the halves.
    """

    draws: int
    mean_error: float
    worst_error: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The constants of one device that were fitted to published runs.

    `constants` are fitted to all runs. `without` has, for each model, the constants that are fitted to the runs of all other
    models. `blind` and `unseen` have the errors on models that a fit has not seen, by the kind of runs; a ratio of `unseen` is
    the computed time over the measured one.
    """

    models: tuple[str, ...]  # whose rows it was fitted on
    constants: Mapping[str, float]  # by all of them
    without: Mapping[str, Mapping[str, float]]  # by those of all models but one
    blind: Mapping[str, Blind] = field(default_factory=dict)  # by kind of runs
    # By kind and model, our time of each run to the measured one, with constants that have not seen the model.
    unseen: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)

    def for_model(self, model: str) -> tuple[Mapping[str, float], tuple[str, ...]]:
        """Return constants that were fitted without the runs of a model, and the models on whose runs they were fitted."""
        if model not in self.without:
            return self.constants, self.models
        return self.without[model], tuple(each for each in self.models if each != model)


def read_fitted(path: Path = FITTED) -> dict[str, Fitted]:
    """Return the fitted constants of each device, by its name."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {
        device: Fitted(
            tuple(of["models"]),
            of["constants"],
            of["without"],
            {kind: Blind(**errors) for kind, errors in of["blind"].items()},
            {kind: {model: tuple(ratios) for model, ratios in by.items()} for kind, by in of["unseen"].items()},
        )
        for device, of in found.items()
    }


def read_clock(device: str, path: Path = CLOCK) -> tuple[float, str]:
    """Return the clock of a device relative to that of the device whose kernels stand for its own, and a published run.

    Args:
        device: The device; its kernels were timed on a like device, and the clock is a share of that device's clock.
        path: The file with the clocks of all such devices.
    """
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return float(found[device]["clock"]), str(found[device]["set_by"])


def write_fitted(fitted: Mapping[str, Fitted], path: Path) -> None:
    """Write fitted constants to a file that `read_fitted` can read.

    Raises:
        WriteError: The file cannot be written.
    """
    write_fit({device: asdict(of) for device, of in fitted.items()}, path)


def write_fit(found: Mapping[str, Any], path: Path) -> None:
    """Write the result of a fit as JSON.

    Raises:
        WriteError: The file cannot be written.
    """
    write_file("--fit", path, (json.dumps(found, indent=1) + "\n").encode())


def rows_of(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a file of published figures by the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
