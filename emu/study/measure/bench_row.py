"""The row of a bench: one size of one collective on one topology; the figures are those of nccl-tests."""

from dataclasses import dataclass

from emu.collective.shape import named_shape
from emu.fabric.perturb import Spread

_THROUGH_ONE = ("broadcast", "reduce")  # all of it leaves or comes to one rank


def busbw_factor(operation: str, n: int) -> float:
    """Return busbw / algbw, so that busbw can be compared with a link's rate whatever n is.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if operation in _THROUGH_ONE else (n - 1) / n


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One size of one collective on one topology; times are virtual but for those that begin with `wall_`."""

    topology: str
    operation: str
    algorithm: str
    shape: tuple[int, ...]  # that the algorithm was built for
    ranks: int
    size_bytes: int
    dtype: str
    reduce: str
    root: int
    time_s: float
    algbw_Bps: float
    busbw_Bps: float
    of_bound: float | None  # the least time possible over the time, before it is rounded to ticks; None: nothing is known of it
    bound_s: float  # the least time possible, of any schedule
    bound: str  # the bound that says so
    trees_s: float | None  # what an all_reduce by the best trees takes, latency apart; None: no all_reduce, or not looked for
    in_a_row_s: float | None  # what the best reduce_scatter and then the best all_gather take, latency apart; None: as above
    bounds_left_out: tuple[str, ...]  # that more effort would look at, where there is a gap between the time and its bound
    chosen: str  # by a library, in its own words: algorithm, protocol, channels; "": no library chose
    passed_over: tuple[str, ...]  # algorithms that were not tried when it was chosen, for they send too much to be timed
    wrong: int | None  # elements that came out wrong; None where no data was moved
    how: str  # which way the engine took
    spread: Spread | None  # of a chaotic time over perturbed starts; None: it is not, or was not asked for
    send_overhead_s: float
    assumptions: tuple[str, ...]  # what the time rests on, a sentence each
    wall_build_s: float
    wall_execute_s: float | None
    wall_fabric_s: float

    @property
    def built(self) -> str:
        """The algorithm, and its grid if it was built for one: `NAME 8x8`."""
        return named_shape(self.algorithm, self.shape)
