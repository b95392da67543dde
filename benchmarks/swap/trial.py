"""Run the tests of rows, first on what they build, then with another topology of the family in the place of each.

One process of pytest. What tests keep in caches of their own (`functools.cache`) is dropped before each run.
"""

import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from _pytest.runner import runtestprotocol

from benchmarks.swap.others import family_of, others, swapped
from benchmarks.swap.rows import Row
from emu.topology import catalogue
from emu.topology.topology import Topology

BUILDS_NONE = "builds no topology"


@dataclass(frozen=True, slots=True)
class Swap:
    """A row, its test, the lines of one family that the test builds, what was put in their place last, and what came of it."""

    row: str
    test: str
    lines: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    red: bool = False
    said: str = ""  # why nothing was tried, or how the test failed


@dataclass
class Builder:
    """Stands for `build_topology`: notes what is built, and builds others in the place of the lines of one family."""

    most: int
    build: Callable[[str], Topology] = catalogue.build_topology
    built: dict[str, None] = field(default_factory=dict)  # a set that keeps its order
    family: str = ""
    turn: int = 0  # which of the others

    def __call__(self, text: str) -> Topology:
        """The topology of that line, or what stands in its place."""
        self.built[text] = None
        other = self.other(text) if family_of(text) == self.family else text
        return self.build(text) if other == text else swapped(text, other)

    def other(self, text: str) -> str:
        """What stands in its place; itself where nothing can."""
        try:
            found = others(text, self.most)
        except catalogue.InputError:
            return text
        return found[self.turn % len(found)] if found else text


class Trial:
    """A plugin of pytest; `swaps` has what it found."""

    def __init__(self, rows: Iterable[Row], most: int) -> None:
        self.rows, self.builder = list(rows), Builder(most)
        self.swaps: list[Swap] = []
        self._of: dict[str, list[Row]] = {}

    def pytest_configure(self) -> None:
        """Before any test imports it."""
        catalogue.build_topology = self.builder

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of a test with a case for each row, a row takes its own."""
        for row in self.rows:
            named = [item for item in items if row.names(getattr(item, "originalname", item.name))]
            own = [item for item in named if row.id in _case(item)]
            for item in own or named:
                self._of.setdefault(item.nodeid, []).append(row)
            if not named:
                self.swaps.append(Swap(row.id, ", ".join(row.tests), said="no such test"))
        items[:] = [item for item in items if item.nodeid in self._of]

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """All runs of one test."""
        found = list(self._tried(item, nextitem))
        for row in self._of[item.nodeid]:
            self.swaps += [replace(swap, row=row.id) for swap in found]
        return True

    def _tried(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Swap]:
        test = item.nodeid.rpartition("/")[2]
        failed = self._run(item, nextitem)
        lines = tuple(self.builder.built)
        if failed:
            yield Swap("", test, said=f"fails as it is: {failed}")
        elif not lines:
            yield Swap("", test, said=BUILDS_NONE)
        else:
            for family in dict.fromkeys(map(family_of, lines)):
                yield self._until_red(item, nextitem, family, tuple(line for line in lines if family_of(line) == family))

    def _until_red(self, item: pytest.Item, nextitem: pytest.Item | None, family: str, lines: tuple[str, ...]) -> Swap:
        said = ""
        for turn in range(self.builder.most):
            said = self._run(item, nextitem, family, turn)
            if said:
                break
        return Swap("", item.nodeid.rpartition("/")[2], lines, tuple(map(self.builder.other, lines)), bool(said), said)

    def _run(self, item: pytest.Item, nextitem: pytest.Item | None, family: str = "", turn: int = 0) -> str:
        """How it failed; "" if it did not."""
        _drop_caches()
        self.builder.built.clear()
        self.builder.family, self.builder.turn = family, turn
        item._initrequest()  # what it was given in an earlier run is used up
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failures = [str(report.longrepr).strip().splitlines()[-1] for report in reports if report.failed]
        return failures[0] if failures else ""


def _case(item: pytest.Item) -> list[object]:
    return [value for value in item.callspec.params.values() if isinstance(value, str)] if hasattr(item, "callspec") else []


def _drop_caches() -> None:
    for kept in gc.get_objects():
        if type(kept) is functools._lru_cache_wrapper:
            inner = kept.__wrapped__
            if isinstance(inner, Builder) or getattr(inner, "__module__", "").startswith("tests."):
                kept.cache_clear()
