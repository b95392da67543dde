"""The account of a trace from another program, stored in its meta: what was read, and the times of its steps."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from emu.trace.formats.measured_parts import MeasuredParts
from emu.trace.trace import Trace
from emu.units import format_time

_KEY = "reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The account of what was read of a trace that another program recorded, and of what was left out."""

    format: str
    ranks: int
    filled_ranks: tuple[int, ...]  # that have no file, and do what a rank of equal groups does
    devices: tuple[str, ...]
    computations: int  # kernels, or operators where the host computes, of all files
    streams: int  # of the rank that has most
    collectives: int  # messages too, of all files
    collective_s: float  # their measured time, with waiting
    host_time: bool  # whether the time of the host between launches counts
    left_out: Mapping[str, int]  # how many events of each kind were not taken
    assumptions: tuple[str, ...]
    step_times_s: tuple[float, ...]  # of each step, as measured: the mean over ranks; (): the trace does not say
    parts: tuple[MeasuredParts, ...] = ()  # of each step, as measured; (): the format has no times of its own
    requests: str = "collectives"  # the noun for what is counted as them: a format may have messages alone

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences on a profile: how many ranks, steps, computations and collectives were read, and what was left out."""
        on = f" on {', '.join(self.devices)}" if self.devices else ""
        streams = f"{self.streams} stream{'s' * (self.streams != 1)}"
        steps = f", {len(self.step_times_s)} step{'s' * (len(self.step_times_s) != 1)}" if self.step_times_s else ""
        waited = f" ({format_time(self.collective_s)} measured, with waiting)" if self.collective_s else ""
        told = [
            f"{self.format}: {self.ranks} ranks{on}{steps}, {self.computations:,} computations on {streams}, "
            f"{self.collectives:,} {self.requests}{waited}"
        ]
        if self.filled_ranks:
            one = len(self.filled_ranks) == 1
            whose = "has no file: it does" if one else "have no file: each does"
            told.append(f"{len(self.filled_ranks)} of the ranks {whose} what a rank of equal groups does")
        if self.left_out:
            told.append("left out: " + ", ".join(f"{count:,} {what}" for what, count in self.left_out.items()))
        if not self.host_time:
            told.append("the time of the host between launches is left out, too; --host-time keeps it")
        return tuple(told)


def reading_entry(reading: Reading) -> tuple[str, str]:
    """Return the name and the text of the entry by which a trace stores the account of how it was read."""
    return _KEY, json.dumps(asdict(reading))


def reading_of(trace: Trace) -> Reading | None:
    """Return the account of the reading of a trace; None if Emu recorded or generated the trace itself."""
    stored = dict(trace.meta).get(_KEY)
    if stored is None:
        return None
    known: dict[str, Any] = json.loads(stored)
    known |= {key: tuple(value) for key, value in known.items() if isinstance(value, list)}
    known["parts"] = tuple(MeasuredParts(**of_step) for of_step in known.get("parts", ()))
    return Reading(**known)
