"""How long an operator takes on one NPU: the larger of its arithmetic and its memory traffic.

E events of a role.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.trace.trace import Events, Kind
from emu.units import MAX_TICKS, TICKS_PER_S, format_time, ticks

FLOAT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks of an NPU, and which share of them operators reach."""

    name: str
    peak_flops: Mapping[str, float]  # FLOP/s by torch's name of the dtype, dense
    hbm_Bps: float
    memory_bytes: int = 0  # 0: not known
    flops_efficiency: float = 0.6
    hbm_efficiency: float = 0.8
    launch_overhead_s: float = 0.0  # of each operator
    request_overhead_s: float = 0.0  # of each collective and message, before a rank enters it
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("flops_efficiency", "hbm_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise must_be(self.name, name, "above 0 and at most 1", getattr(self, name))
        rates = {"hbm_Bps": self.hbm_Bps, **{f"peak_flops of {d}": peak for d, peak in self.peak_flops.items()}}
        for name, rate in rates.items():
            if not rate > 0:
                raise must_be(self.name, name, "above 0", rate)
        for name in ("launch_overhead_s", "request_overhead_s"):
            if not getattr(self, name) >= 0:
                raise must_be(self.name, name, "0 or more", getattr(self, name))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the times rest on, a sentence each."""
        request = f"launching a collective or a message takes {format_time(self.request_overhead_s)} on each of its ranks"
        return (
            f"an operator takes the longer of its FLOPs at {self.flops_efficiency:g} of the {self.name}'s peak "
            f"and its bytes at {self.hbm_efficiency:g} of its memory bandwidth",
            f"launching an operator takes {format_time(self.launch_overhead_s)}",
            *([request] if self.request_overhead_s else []),
        )

    @property
    def request_overhead_fs(self) -> int:
        """Ticks of what each request takes before a rank enters it."""
        return ticks(self.request_overhead_s, "request_overhead_s")

    def peak(self, dtype: str) -> float:
        """FLOP/s in that dtype.

        Raises:
            InputError: the device has no peak for it; the message names those it has.
        """
        if dtype not in self.peak_flops:
            raise unknown(f"dtype of {self.name}", dtype, self.peak_flops)
        return self.peak_flops[dtype]

    def seconds(self, events: Events, dtype: str) -> F64:
        """[E] what each computation takes; 0 for other events.

        Args:
            events: As they ran.
            dtype: What float32 is timed as.

        Raises:
            InputError: an unknown dtype, or FLOPs in one that the device has no peak for.
        """
        rates = self._rates(events, dtype)
        flops_s = events.flops / (self.flops_efficiency * rates)
        bytes_s = timed_bytes(events, dtype) / (self.hbm_efficiency * self.hbm_Bps)
        return np.where(events.kind == Kind.COMPUTE, np.maximum(flops_s, bytes_s) + self.launch_overhead_s, 0.0)

    def ticks(self, events: Events, dtype: str) -> I64:
        """[E] the same in ticks, each rounded half-even once.

        Raises:
            InputError: as `seconds`; or an operator that takes longer than the clock can count.
        """
        ticks = np.rint(self.seconds(events, dtype) * TICKS_PER_S)
        late = ticks >= float(MAX_TICKS)
        if late.any():
            row = int(late.argmax())
            takes = f"event {row} ({events.name[row]}) takes {ticks[row] / TICKS_PER_S:.4g} s"
            raise InputError(f"{self.name}: {takes}, it must be below 9223 s, the end of the clock; take a faster device")
        return ticks.astype(np.int64)

    def _rates(self, events: Events, dtype: str) -> F64:
        """[E] peak FLOP/s of each event's dtype; 1 where nothing is computed."""
        rate = np.ones(len(events))
        ran = np.array(events.dtype, dtype=str)
        counted = (events.flops > 0) & (events.kind == Kind.COMPUTE)
        for name in np.unique(ran[counted]).tolist():
            rate[counted & (ran == name)] = self.peak(timed_as(name, dtype))
        return rate


def timed_as(ran: str, dtype: str) -> str:
    """The dtype that one which ran is timed as."""
    return dtype if ran == "float32" else ran


def timed_bytes(events: Events, dtype: str) -> I64:
    """[E] the bytes of each event, had its float32 elements been of `dtype`.

    Raises:
        InputError: an unknown dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, FLOAT_BYTES)
    ran = np.array([d == "float32" for d in events.dtype], dtype=np.bool_)
    return np.asarray(events.bytes - ran * events.count * (4 - FLOAT_BYTES[dtype]))
