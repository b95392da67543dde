"""Synthesis: the best schedule of a collective that is found for a topology, proved, and timed on its fabric.

Several schedules are made of the same forests: with few or many pieces, in lanes or in streams, and by matching in time. Each
is timed, and the fastest is kept. Pieces are doubled as long as that helps. The work is bounded, and so is the time if that is
asked.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import lru_cache

from emu.arrays import digest
from emu.bound.cuts import ALL_PAIRS
from emu.bound.limit import FULL_EFFORT, limit_of
from emu.bound.trees import tree_optimum
from emu.collective.chooser_names import SYNTHESIZED
from emu.collective.operation import Operation, operation
from emu.collective.proof import prove
from emu.collective.schedule import MAX_ROWS, Schedule
from emu.collective.transform import slot_representatives
from emu.dtypes import item_bytes
from emu.errors import InputError, must_be
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.choice.site import Site
from emu.study.timing import CollectiveJob, time_collective
from emu.synthesis.exchange.exchange_families import ExchangeFamilies
from emu.synthesis.hops import hop_network
from emu.synthesis.splitting import UnpairedError
from emu.synthesis.variants import GRID, GRID_AXES, MATCHED, SYNTHESIS_OPERATIONS, Variant, VariantFamilies
from emu.topology.topology import Topology
from emu.units import format_time

NEAR = 0.995  # share of the optimum of trees from which nothing more is tried
_PATIENCE = 2  # doublings of units without a gain; a matching is a matter of luck
_MOST_WORK = 2**18  # flows and the like: a minute or two
_GAIN = 0.995  # a doubling of pieces must lower the time at least to this share of it


class WorkUpError(Exception):
    """The error that ends a synthesis that has done as much work as it may: what has been found so far is the result."""


class TimeUpError(Exception):
    """The error that ends a synthesis whose time is over."""


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """A request for a schedule: an operation on the first ranks of a topology, of one size."""

    operation: str
    size: int  # bytes of the whole buffer; the total for all_gather and reduce_scatter
    ranks: int | None = None  # None: all NPUs
    root: int = 0
    dtype: str = "float32"
    limit_s: float | None = None  # None: there is no limit


@dataclass(frozen=True, eq=False, slots=True)
class SynthesisResult:
    """A proved schedule with its time, and how it was made."""

    schedule: Schedule
    operation: Operation
    site: Site
    item_bytes: int  # of an element
    time_s: float
    trees_s: float  # what the best trees take
    trees_by: str  # what gives that optimum
    variant: Variant
    tried: int  # schedules that were timed
    cut_short: bool  # whether the time was over before all were tried

    @property
    def of_trees(self) -> float:
        """The time of the best trees over the time of the schedule."""
        return self.trees_s / self.time_s if self.time_s else 1.0


def synthesize(topology: Topology, request: SynthesisRequest) -> SynthesisResult:
    """Return the fastest schedule that is found for a request; it is proved.

    Raises:
        InputError: The operation or the size is impossible, paths do not join the ranks, or the time is over before a first
            schedule is proved.
    """
    began, item = time.perf_counter(), item_bytes(request.dtype)
    site = Site.first(topology, request.ranks)
    if request.operation not in SYNTHESIS_OPERATIONS:
        raise must_be("synthesize", "operation", f"one of {', '.join(SYNTHESIS_OPERATIONS)}", request.operation)
    check_circuits(topology)
    op = operation(request.operation, len(site.npus), request.root)
    if request.size <= 0 or request.size % item:
        what = f"a multiple of {item} bytes above 0, the size of a {request.dtype}"
        raise must_be("synthesize", "--size", what, request.size)
    if request.limit_s is not None and request.limit_s <= 0:
        raise must_be("synthesize", "--time", "above 0", format_time(request.limit_s))
    return _Search(op, site, request.size // item, item, request.limit_s, began).find()


def check_circuits(topology: Topology) -> None:
    """Check that no optical switch of a topology turns between messages, which a synthesis does not plan.

    Raises:
        InputError: One does.
    """
    if topology.circuits is not None:
        mend = "name an algorithm of `emu list collectives`, or take a topology whose circuits stay"
        raise InputError(f"synthesize: the optical switches of {topology.name} turn between messages; {mend}")


@lru_cache(maxsize=64)
def kept_schedule(site: Site, op: Operation, elements: int, item: int) -> tuple[Schedule, Variant]:
    """Return the schedule that a whole synthesis finds for an operation at a site, and how it is made.

    How it is made is kept in the user's cache folder, by the links and the request, so that the next command makes it at once.

    Raises:
        InputError: See `synthesize`.
    """
    if op.name not in SYNTHESIS_OPERATIONS:
        raise must_be("choice", "a synthesised operation", f"one of {', '.join(SYNTHESIS_OPERATIONS)}", op.name)
    check_circuits(site.topology)
    search = _Search(op, site, elements, item, None, 0.0)
    key = digest((SYNTHESIZED, site.npus, op.digest(), elements, item))
    with suppress(TypeError, ValueError):  # nothing is kept, or nothing that can be read
        known = Variant(*recall_entry(site.topology, key))
        schedule = search.made(known)
        if schedule is not None:
            return schedule, known
    found = search.find()
    keep_entry(site.topology, key, astuple(found.variant))
    return found.schedule, found.variant


@dataclass(eq=False, slots=True)
class _Search:
    """The search for the fastest schedule of an operation at a site."""

    op: Operation
    site: Site
    elements: int
    item: int
    limit_s: float | None  # the time that it may take; None: there is no limit
    began: float  # by the performance counter
    best: tuple[float, Schedule, Variant] | None = None
    tried: int = 0
    work: int = 0  # flows and the like
    is_over: bool = False
    refused: str = "all have too many messages; take fewer ranks"  # why a schedule could not be timed
    trees: tuple[float, str] | None = None  # what the best trees take, and what gives it; None: it is not known yet

    def tick(self) -> float | None:
        """Count a piece of work, and return the seconds that are left; None: any number.

        Raises:
            WorkUpError: The work is.
            TimeUpError: The time is.
        """
        self.work += 1
        if self.work > _MOST_WORK:
            raise WorkUpError
        return self.left_s()

    def left_s(self) -> float | None:
        """Return the seconds that are left; None: any number.

        Raises:
            TimeUpError: The time is over.
        """
        left = None if self.limit_s is None else self.began + self.limit_s - time.perf_counter()
        if left is not None and left <= 0:
            raise TimeUpError
        return left

    def find(self) -> SynthesisResult:
        """Return the fastest schedule.

        Raises:
            InputError: There is none yet when the time is over, or see `hop_network`.
        """
        families = self._families()
        try:
            self._climb_all(families)
        except WorkUpError:
            self.refused = "it takes more work than a synthesis does; take fewer ranks or switches"
        except TimeUpError:
            self.is_over = True
        if self.best is None:
            raise self._error()
        time_s, schedule, variant = self.best
        return SynthesisResult(
            schedule, self.op, self.site, self.item, time_s, *self._least(), variant, self.tried, self.is_over
        )

    def _least(self) -> tuple[float, str]:
        """Return the time of the best trees, or of an all_to_all on the best paths, and what gives it.

        It is worked out after the first schedule has been found, so that little time suffices for a schedule.
        """
        if self.trees is None:
            where = self.site.topology, self.op, self.site.npus
            block_bytes = int(self.op.block_counts(self.elements).min()) * self.item
            if self.op.name == ALL_PAIRS:
                self.trees = limit_of(*where, helpers=False, effort=FULL_EFFORT).least_s(block_bytes)
            else:
                optimum = tree_optimum(*where)
                self.trees = optimum.least_s(block_bytes), optimum.by
        return self.trees

    def _climb_all(self, families: VariantFamilies | ExchangeFamilies) -> None:
        """Try the families one after another, until one comes near the best trees; a family that fails is left out."""
        for family in families.all():
            try:
                self._climb(family)
            except UnpairedError:
                self.refused = "the capacities into a switch do not suffice for those out of it"
            if self._is_near():
                return

    def _error(self) -> InputError:
        """Return the error for a search that has found nothing: the time was too short, or no schedule could be timed."""
        if self.limit_s is not None and self.is_over:
            what, mend = "enough for a first schedule", "give more time, or take fewer ranks"
            return must_be("synthesize", "--time", what, format_time(self.limit_s), mend)
        return InputError(f"synthesize: no schedule can be timed on {self.site.topology.name}; {self.refused}")

    def _families(self) -> VariantFamilies | ExchangeFamilies:
        """Return the schedules that are tried."""
        block_bytes = float(self.op.block_counts(self.elements).max(initial=0)) * self.item
        hops = hop_network(self.site.topology, self.site.npus)
        families = ExchangeFamilies if self.op.name == ALL_PAIRS else VariantFamilies
        if hops.grid is not None:
            self.refused = "so many ranks behind switches need translations, and none serve here; take fewer ranks"
        return families(self.site.topology, hops, self.op, block_bytes, self.tick)

    def made(self, wanted: Variant) -> Schedule | None:
        """Return the proved schedule of a variant; None if there is none."""
        for variant, build in self._families().family(wanted.how):
            if variant == wanted:
                schedule = build()
                if schedule is not None:
                    prove_whole(schedule, self.op)
                return schedule
        return None

    def _is_near(self) -> bool:
        """Return whether the best time is near the optimum of trees."""
        return self.best is not None and self._least()[0] >= NEAR * self.best[0]

    def _climb(self, family: Iterator[tuple[Variant, Callable[[], Schedule | None]]]) -> None:
        """Try the variants of a family, in the order of their units or pieces, until more do not help."""
        last, misses = float("inf"), 0
        for variant, build in family:
            self.tick()
            schedule = build()
            if schedule is None or schedule.n_rows_of_all > MAX_ROWS:
                return
            taken = self._try(schedule, variant)
            misses += not taken < last * _GAIN  # a schedule that cannot be timed is a miss, too
            if misses >= (_PATIENCE if variant.how in (GRID, GRID_AXES, MATCHED) else 1) or self._is_near():
                return
            last = min(last, taken)

    def _try(self, schedule: Schedule, variant: Variant) -> float:
        """Time a schedule; if it is the fastest yet, prove it and keep it. The time is returned."""
        self.tried += 1
        where = self.site.topology, self.site.placement()
        job = CollectiveJob(self.op, schedule, self.elements, self.item, *where, name=f"{self.op.name} synthesised")
        try:
            taken = time_collective(job).end_s
        except InputError as error:  # a message ends beyond the clock
            self.refused = str(error)
            return float("inf")
        if self.best is None or taken < self.best[0]:
            prove_whole(schedule, self.op, self.left_s)
            self.best = taken, schedule, variant
        return taken


def prove_whole(schedule: Schedule, op: Operation, check: Callable[[], object] | None = None) -> None:
    """Prove a schedule, by its translations where it declares some; `check` may end the proof by an error, as in `prove`.

    Raises:
        ProofError: It does not do the operation.
    """
    if schedule.translate:
        prove(*slot_representatives(schedule, op), check=check)
    else:
        prove(schedule, op, check=check)
