"""The option that serves a request of a step, and the least time that any of them gives it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.errors import InputError
from emu.study.training.step_choice.options import RAN, Coordinate, Option, ServedFabric, other_choosers, step_chooser
from emu.topology.catalogue import build_topology

RING, TREE = AlgorithmOnDims("ring"), AlgorithmOnDims("tree")
BOARD = build_topology("ub-mesh:board")


def asked(elements: int, dtype: str = "float32", axis: str = "dp") -> Request:
    return Request("all_reduce", (0, 1), 0, elements, dtype, axis=axis)


def test_requests_of_an_axis_are_one_coordinate_if_their_bytes_differ_by_less_than_sixteen_times() -> None:
    """A class has sizes up to the next 16-fold; bytes count as they are in the run."""
    sizes = [Coordinate.of(asked(2**bits, "int8")).size_class for bits in range(12)]
    assert [sizes.count(each) for each in dict.fromkeys(sizes)] == [3, 4, 4, 1]
    assert Coordinate.of(asked(2**5, "float32")) == Coordinate.of(asked(2**7, "int8")) != Coordinate.of(asked(2**5, "int8"))
    assert Coordinate.of(asked(8)) != Coordinate.of(asked(8, axis="tp"))


def test_a_request_has_the_option_of_its_coordinate_or_else_what_is_fastest_alone() -> None:
    option, none = Option("tree", lambda _: TREE), Option("none", lambda _: None)
    own = {Coordinate.of(asked(8)): option, Coordinate.of(asked(8, axis="tp")): none}
    choose = step_chooser(lambda _: RING, own)
    assert [choose(asked(8, axis=axis)) for axis in ("dp", "tp", "pp")] == [TREE, RING, RING]
    assert [step_chooser(None, own)(asked(8, axis=axis)) for axis in ("dp", "tp", "pp")] == [TREE, None, None]


@dataclass(frozen=True, eq=False)
class Known(ServedFabric):
    """A fabric whose requests take known ticks by the chooser, and by algorithms in the order of their bounds."""

    ticks: dict[Any, int] = field(default_factory=dict)
    rows: tuple[tuple[int, str, int | None], ...] = ()  # bound, name, and ticks
    seen: list[Any] = field(default_factory=list)

    def isolated(self, asked: Any) -> Any:
        """Return the ticks by the chooser."""
        if self.choice.chooser not in self.ticks:
            raise InputError("it fits no such topology")
        return SimpleNamespace(ticks=self.ticks[self.choice.chooser])

    def bounds(self, asked: Any, within_fs: float) -> Iterator[Any]:
        """Yield the rows up to a bound."""
        self.seen.append(within_fs)
        return iter([SimpleNamespace(bound_fs=row[0], name=row[1]) for row in self.rows if row[0] <= within_fs])

    def with_algorithm(self, asked: Any, bound: Any) -> Any:
        """Return the ticks of a row."""
        self.seen.append(bound.name)
        [ticks] = [row[2] for row in self.rows if row[1] == bound.name]
        return None if ticks is None else SimpleNamespace(ticks=ticks)


@pytest.mark.parametrize(
    ("others", "least", "seen"),
    [
        (("slow", "unfit"), 60, [90, "a", "b", "c"]),
        (("slow", "quick"), 60, [80, "a", "b", "c"]),
        (("quickest", "slow"), 25, [25, "a"]),
        ((), 60, [90, "a", "b", "c"]),
    ],
)
def test_the_least_time_is_by_any_chooser_or_algorithm_whose_bound_is_below_it(others: Any, least: int, seen: Any) -> None:
    """An algorithm whose bound is the least time so far, or above it, is not timed."""
    rows = ((20, "a", None), (30, "b", 70), (40, "c", 60), (60, "d", 61), (65, "e", 1))
    ticks = {None: 90, "slow": 120, "quick": 80, "quickest": 25}
    fabric = Known(Choice(), BOARD, np.arange(8), 0, ticks, rows)
    assert fabric.least_ticks(None, others) == least  # type: ignore[arg-type]
    assert fabric.seen == seen


def test_an_algorithm_serves_the_groups_that_it_fits_on_their_npus() -> None:
    """Recursive doubling needs a power of two."""
    fabric = ServedFabric(Choice(), build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=1us"), np.arange(16)[::-1], 0)
    doubling = fabric.algorithm("recursive-doubling")
    assert doubling.name == "recursive-doubling"
    found = [doubling.chooser(Request("all_reduce", tuple(range(n)), 0, 64)) for n in (4, 3, 8)]
    assert [each and each.algorithm for each in found] == ["recursive-doubling", None, "recursive-doubling"]


def test_the_chooser_of_a_recorded_run_is_tried_where_it_is_known() -> None:
    own, without = (other_choosers(BOARD, "float32", np.arange(8), ran) for ran in (lambda _: TREE, None))
    assert {*own} - {*without} == {RAN}
    assert own[RAN](asked(8)) == TREE
    assert without["defaults"](asked(8)) == Choice().algorithm_for(asked(8))
