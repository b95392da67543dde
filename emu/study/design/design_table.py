"""The answer of a design: the points that no other beats, and what would change the choice among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from emu.study.training.step.step import LEFT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignRow:
    """A point whose best plan was timed: what it does, and what it takes of money and power."""

    topology: str
    device: str
    npus: int
    tokens_per_s: float
    dollars: float  # at the prices in the middle; of the network and the NPUs, and the energy of --years
    low_dollars: float  # at the lowest prices
    high_dollars: float
    watts: float
    availability: float | None = field(default=None, metadata=LEFT_OUT)  # share of a machine's NPUs in groups, over the time
    tokens_per_s_dollar: float
    step_time_s: float
    plan: str
    axes: str  # that of neighbouring NPUs first
    mfu: float
    settings: Mapping[str, str]  # of the point, by which it differs from others
    beats: int  # how many other points are beaten by this one, with what is known of them
    why: str  # compared with a row above: what is different, and what that changes
    beaten_by: int | None = field(
        default=None, metadata=LEFT_OUT
    )  # number of a row of the front, from 1; None: it is of the front

    @property
    def name(self) -> str:
        """The topology, the device and the number of NPUs."""
        return f"{self.npus} {self.device} on {self.topology}"


@dataclass(frozen=True, slots=True)
class Winner:
    """A range of a price, and the point that does most for the money there."""

    low: float
    high: float
    point: str


@dataclass(frozen=True, slots=True)
class PriceRange:
    """The price of a thing, from low to high, with the point that wins in each part of the range."""

    thing: str
    dollars: float  # its price in the table
    of_sources: bool  # whether the range is that of sources; else from half to twice the price
    winners: tuple[Winner, ...]


@dataclass(frozen=True, slots=True)
class NeededChange:
    """A change by which a point would do as much for the money as the first: of its step, its dollars, or a price."""

    point: str
    role: str  # why the point is looked at: it is the second, or the best of its family
    what: str
    now: float
    needed: float

    @property
    def factor(self) -> float:
        """How many times as large it would have to be."""
        return self.needed / self.now if self.now else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignTable:
    """A design: the front, the points that were timed and are beaten, and what the choice depends on."""

    model: str
    global_batch: int
    seq: int
    software: str
    given: str  # words that all plans searched have
    prices: str  # the name of the price book
    points: int
    too_dear: int  # beyond the budget or the power
    no_better: int  # points beside which another one has links nowhere slower, at no more of anything that is paid for
    refused: int  # points that have no step, for the reasons in `refused_why`
    timed: int  # points whose best plan was timed
    bounded: int  # points that were beaten by their bounds
    steps: int  # steps that were timed, of all plans of these points
    rows: tuple[DesignRow, ...]  # the front, the most tokens per second a dollar first
    beaten: tuple[DesignRow, ...]  # timed points that others beat
    ranges: tuple[PriceRange, ...]
    changes: tuple[NeededChange, ...]
    refused_why: Mapping[str, int]  # reasons why points have no step, the most frequent first, with how many points each has
    wall_s: float = 0.0

    @property
    def fastest(self) -> DesignRow:
        """The row of the front with the most tokens per second."""
        return max(self.rows, key=lambda row: row.tokens_per_s)
