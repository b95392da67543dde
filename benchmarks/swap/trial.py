"""Work out rows of papers, first on what they build, then with another topology of the family in the place of each.

`build_topology` is replaced before the papers are imported. What they keep in caches of their own is dropped before each run.
"""

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.swap.others import family_of, others, swapped
from emu.errors import InputError
from emu.topology import catalogue
from emu.topology.topology import Topology

BUILDS_NONE = "builds no topology"


@dataclass(frozen=True, slots=True)
class Swap:
    """A row, the lines of one family that it builds, what was put in their place last, and whether the row was met then too."""

    row: str
    lines: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    red: bool = False
    said: str = ""  # why nothing was tried


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
        """Return the line that stands in its place; itself where nothing can."""
        try:
            found = others(text, self.most)
        except InputError:
            return text
        return found[self.turn % len(found)] if found else text


def tried(row: str, met: Callable[[], bool], builder: Builder) -> Iterator[Swap]:
    """Yield how a row fares where each family of topologies that it builds is replaced by others, family by family.

    Args:
        row: Its id.
        met: Works it out; whether it is what is printed. It may raise anything.
        builder: Stands for `build_topology` already.
    """
    if not _run(met, builder):
        yield Swap(row, said="is not met as it is")
        return
    lines = tuple(builder.built)
    if not lines:
        yield Swap(row, said=BUILDS_NONE)
    for family in dict.fromkeys(map(family_of, lines)):
        of = tuple(line for line in lines if family_of(line) == family)
        red = any(not _run(met, builder, family, turn) for turn in range(builder.most))
        yield Swap(row, of, tuple(map(builder.other, of)), red)


def _run(met: Callable[[], bool], builder: Builder, family: str = "", turn: int = 0) -> bool:
    _drop_caches()
    builder.built.clear()
    builder.family, builder.turn = family, turn
    try:
        return met()
    except Exception:
        return False


def _drop_caches() -> None:
    for kept in caches():
        kept.cache_clear()


def caches(but: Sequence[str] = ()) -> "list[functools._lru_cache_wrapper[Any]]":
    """The functions of the papers that keep what they have found, but for those with one of some names."""
    every = [kept for kept in gc.get_objects() if type(kept) is functools._lru_cache_wrapper]
    return [kept for kept in every if isinstance(kept.__wrapped__, Builder) or _is_of_papers(kept.__wrapped__, but)]


def _is_of_papers(function: Callable[..., object], but: Sequence[str]) -> bool:
    return getattr(function, "__module__", "").startswith("launch.papers.") and function.__name__ not in but
