"""How a training run is laid over ranks: the sizes of its axes and its batch.

Axes in the order [TP, CP, EP, DP, PP], the first fastest: rank = tp + TP * (cp + CP * (ep + EP * (dp + DP * pp))).
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import prod

import numpy as np

from emu.errors import InputError, must_be
from emu.model.model import Model
from emu.registry import unknown

AXES = ("tp", "cp", "ep", "dp", "pp")
WORKING = ("tp", "dp")  # the others can only be 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the axes and of the batch: what changes the loss or the groups, and nothing else."""

    tp: int = 1  # tensor parallel
    cp: int = 1  # context parallel
    ep: int = 1  # expert parallel
    dp: int = 1  # data parallel
    pp: int = 1  # pipeline parallel
    global_batch: int = 16  # sequences a step, over all ranks
    seq: int = 128  # tokens a sequence
    microbatch: int = 0  # sequences a rank takes at once; 0: all of its share

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "microbatch" else 1
            if getattr(self, field.name) < least:
                raise must_be("plan", field.name, f"{least} or more", getattr(self, field.name))
        for axis in AXES:
            if axis not in WORKING and getattr(self, axis) != 1:
                raise must_be("plan", axis, "1", getattr(self, axis), f"only {' and '.join(WORKING)} are implemented")
        self._check_batch()

    def _check_batch(self) -> None:
        if self.global_batch % self.dp:
            fits = _nearest(self.dp, _divisors(self.global_batch))
            mend = f"dp={fits}, or a global batch of {_multiples(self.global_batch, self.dp)}"
            raise must_be("plan", "dp", f"a divisor of the global batch {self.global_batch}", self.dp, f"take {mend}")
        if self.microbatch and self.rank_batch % self.microbatch:
            what = f"a divisor of the {self.rank_batch} sequences of a rank"
            fits = _nearest(self.microbatch, _divisors(self.rank_batch))
            raise must_be("plan", "microbatch", what, self.microbatch, f"take {fits}")

    @staticmethod
    def parse(text: str, **batch: int) -> "Plan":
        """From words such as `dp=4,tp=4`; axes that are not named are 1.

        Args:
            text: AXIS=SIZE, separated by commas.
            batch: Any of global_batch, seq and microbatch.

        Raises:
            InputError: not AXIS=SIZE, an unknown axis, one given twice, or sizes that do not fit each other.
        """
        sizes: dict[str, int] = {}
        for word in text.split(","):
            axis, equals, size = word.strip().partition("=")
            if not equals or not size.isdecimal():
                raise must_be("plan", "an axis", "AXIS=SIZE", word, "e.g. dp=4,tp=4")
            if axis not in AXES:
                raise unknown("axis of a plan", axis, AXES)
            if axis in sizes:
                raise InputError(f"plan: axis {axis} is given twice in {text!r}")
            sizes[axis] = int(size)
        return Plan(**sizes, **batch)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the axes, in their order."""
        return tuple(getattr(self, axis) for axis in AXES)

    @property
    def world(self) -> int:
        """Ranks of the run."""
        return prod(self.sizes)

    @property
    def rank_batch(self) -> int:
        """Sequences of one rank a step."""
        return self.global_batch // self.dp

    @property
    def passes(self) -> int:
        """Forward and backward passes of one rank a step."""
        return self.rank_batch // self.microbatch if self.microbatch else 1

    @property
    def tokens(self) -> int:
        """Tokens a step, over all ranks."""
        return self.global_batch * self.seq

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is on each axis."""
        places = np.unravel_index(rank, self.sizes[::-1])[::-1]
        return {axis: int(place) for axis, place in zip(AXES, places, strict=True)}

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that differ on `axis` alone, in ascending order of their first rank."""
        ranks = np.arange(self.world).reshape(self.sizes[::-1])
        rows = np.moveaxis(ranks, len(AXES) - 1 - AXES.index(axis), -1).reshape(-1, getattr(self, axis))
        return tuple(sorted(tuple(int(r) for r in row) for row in rows))

    def check(self, model: Model, world: int | None = None) -> None:
        """Refuse a model that this plan does not divide, or a world of another size.

        Raises:
            InputError: the message names the nearest sizes that fit.
        """
        if world is not None and world != self.world:
            raise must_be("plan", "the product of its axes", f"the {world} ranks of the world", self.world)
        for name, size in model.tp_divides.items():
            if size % self.tp:
                fits = _nearest(self.tp, _common_divisors(model.tp_divides.values()))
                what = f"a divisor of the {size} {name} of {model.name}"
                raise must_be("plan", "tp", what, self.tp, f"take tp={fits}")
        if self.seq > model.max_seq:
            raise must_be("plan", "seq", f"at most the {model.max_seq} tokens of {model.name}", self.seq)

    def alone(self) -> "Plan":
        """The same batch on one rank: what the reference runs."""
        return replace(self, **dict.fromkeys(AXES, 1), microbatch=0)

    def __str__(self) -> str:
        return ",".join(f"{axis}={size}" for axis, size in zip(AXES, self.sizes, strict=True) if size > 1) or "dp=1"


def _divisors(n: int) -> set[int]:
    return {d for d in range(1, n + 1) if n % d == 0}


def _common_divisors(sizes: Iterable[int]) -> set[int]:
    return _divisors(int(np.gcd.reduce(list(sizes))))


def _nearest(wanted: int, fitting: set[int]) -> str:
    """The largest that fits below, and the smallest above."""
    near = (max((f for f in fitting if f < wanted), default=None), min((f for f in fitting if f > wanted), default=None))
    return " or ".join(str(f) for f in near if f is not None)


def _multiples(n: int, of: int) -> str:
    low = n // of * of
    return " or ".join(str(m) for m in (low, low + of) if m)
