"""How long an operator takes on one NPU, by its kernel and its shape.

- A product takes its FLOPs at the share of peak that large ones reach, times its waves, and a share of its bytes that is not
  hidden under them; attention by one kernel its FLOPs (of a causal one half) at a share of its own.
- Nothing takes less than its bytes at a share of the memory's bandwidth, and everything else takes just that.
Sources: Williams et al., Roofline (2009); for waves see `emu.trace.device.kernels`.
E events of a role.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, log2
from typing import Any

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.trace.device.dtypes import TF32, timed_as, timed_bytes
from emu.trace.device.kernels import beside, waves
from emu.trace.kernel import Kernel
from emu.trace.trace import Events, Kind
from emu.units import MAX_TICKS, TICKS_PER_S, format_time, ticks

BARE = (8, 0)  # of GPUs that have bfloat16 the first; so little is told of an NPU that has no such number
NODE = 8  # NPUs of one, where jitter counts nodes
# What each number of a device must be.
_MUST: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("gemm_share", "attention_efficiency", "hbm_efficiency"), lambda share: 0 < share <= 1, "above 0 and at most 1"),
    (("unhidden_share", "jitter"), lambda share: 0 <= share <= 1, "0 or more and at most 1"),
    (("contention",), lambda share: 0 <= share < 1, "0 or more and below 1"),
    (("hbm_Bps",), lambda rate: 0 < rate < inf, "above 0"),
    (("launch_overhead_s", "request_overhead_s", "cores", "memory_bytes"), lambda n: 0 <= n < inf, "0 or more"),
    (("tile",), lambda sides: min(sides) >= 1, "rows and columns of 1 or more"),
)


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks of an NPU, and which share of them operators reach."""

    name: str
    peak_flops: Mapping[str, float]  # FLOP/s by torch's name of the dtype, and of TF32, dense
    hbm_Bps: float
    memory_bytes: int = 0  # 0: not known
    cores: int = 0  # that work on a tile of a product each (of a GPU its SMs); 0: not known, so that waves are not counted
    tile: tuple[int, int] = (128, 256)  # rows and columns of a product that a core works out at one time
    gemm_share: float = 0.7  # of peak, that large products reach
    attention_efficiency: float = 0.5  # of peak, that one kernel of attention reaches
    unhidden_share: float = 0.1  # of the time of a product's bytes, that is not hidden under its arithmetic
    jitter: float = 0.004  # by which share computation grows for each doubling of nodes
    hbm_efficiency: float = 0.8
    contention: float = 0.0  # share of the cores that a collective takes from products beside it
    launch_overhead_s: float = 0.0  # of each operator
    request_overhead_s: float = 0.0  # of each collective and message, before a rank enters it
    nodes: int = 1  # over which a step runs
    fitted_on: str = ""  # what gave the shares; "": nothing did
    source: str = ""
    assumed: str = ""  # of peaks that no source prints: which they are, and what was taken; "": all are printed
    capability: tuple[int, int] = BARE  # by CUDA's count, as a script is told

    def __post_init__(self) -> None:
        for names, holds, what in _MUST:
            for name in names:
                value = getattr(self, name)
                if not holds(value):
                    raise must_be(self.name, name, what, value)
        for dtype, peak in self.peak_flops.items():
            if not 0 < peak < inf:
                raise must_be(self.name, f"peak_flops of {dtype}", "above 0", peak)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the times rest on, a sentence each."""
        return (
            f"a product takes its FLOPs at {self.gemm_share:g} of the {self.name}'s peak{self._waves_told}, and "
            f"{self.unhidden_share:g} of the time of its bytes; attention its FLOPs (of a causal one half) at "
            f"{self.attention_efficiency:g} of peak",
            f"no operator takes less than its bytes at {self.hbm_efficiency:g} of the memory bandwidth, which is what all but "
            f"products and attention take",
            f"these shares of the {self.name} are {f'fitted on {self.fitted_on}' if self.fitted_on else 'unfitted'}",
            f"launching an operator takes {format_time(self.launch_overhead_s)}",
            *self._told_if_any,
        )

    @property
    def _waves_told(self) -> str:
        return f", in waves of {self.cores} tiles of {self.tile[0]} x {self.tile[1]}" if self.cores else ""

    @property
    def _told_if_any(self) -> list[str]:
        request, jitter, contention = self.request_overhead_s, self.jitter, self.contention
        told = {
            f"launching a collective or a message takes {format_time(request)} on each of its ranks": request,
            f"computation takes {jitter:g} longer for each doubling of {self.nodes} nodes of {NODE}": jitter * (self.nodes > 1),
            f"a collective takes {contention:g} of the cores from products beside it": contention,
        }
        return [sentence for sentence, counts in told.items() if counts]

    @property
    def request_overhead_fs(self) -> int:
        """Ticks of what each request takes before a rank enters it."""
        return ticks(self.request_overhead_s, "request_overhead_s")

    def over(self, ranks: int) -> "Device":
        """The same where a step runs on so many ranks."""
        return replace(self, nodes=max(1, -(-ranks // NODE)))

    def peak(self, dtype: str) -> float:
        """FLOP/s in that dtype; in TF32 that of float32, where the device has no TF32.

        Raises:
            InputError: the device has no peak for it; the message names those it has.
        """
        if dtype == TF32 and dtype not in self.peak_flops:
            return self.peak("float32")
        if dtype not in self.peak_flops:
            raise unknown(f"dtype of {self.name}", dtype, self.peak_flops)
        return self.peak_flops[dtype]

    def seconds(self, events: Events, dtype: str, *, contended: bool | None = None) -> F64:
        """[E] what each computation takes; 0 for other events.

        Args:
            events: As they ran.
            dtype: What float32 is timed as, or `AS_RAN`.
            contended: Whether a collective is under way beside all of them; None: the events say beside which.

        Raises:
            InputError: an unknown dtype, or FLOPs in one that the device has no peak for.
        """
        flops_s = events.flops / self._rates(events, dtype)
        bytes_s = timed_bytes(events, dtype) / (self.hbm_efficiency * self.hbm_Bps)
        takes = np.maximum(self._arithmetic_s(events, flops_s, bytes_s, contended), bytes_s) + self.launch_overhead_s
        return np.where(events.kind == Kind.COMPUTE, takes * (1 + self.jitter * log2(self.nodes)), 0.0)

    def _arithmetic_s(self, events: Events, flops_s: F64, bytes_s: F64, contended: bool | None) -> F64:
        """[E] seconds from seconds at peak, and of the bytes."""
        of_kernel = [events.kernel == kernel for kernel in (Kernel.PRODUCT, Kernel.ATTENTION, Kernel.CAUSAL)]
        product = flops_s / self.gemm_share * waves(events, self.cores, self.tile) + self.unhidden_share * bytes_s
        if self.contention:
            product /= 1 - self.contention * (beside(events) if contended is None else contended)
        attention = flops_s / self.attention_efficiency
        return np.select(of_kernel, [product, attention, attention / 2], flops_s / self.gemm_share)

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
