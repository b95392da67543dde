"""A process group as one file names it (its ranks and a label), and checks of such ranks."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

MOST_RANKS = 2**24  # limit of the ranks of a job: a damaged number of a rank is beyond it


class RankGroup(NamedTuple):
    """A process group of a rank; two groups of a file are the same if ranks and label are equal."""

    ranks: tuple[int, ...]
    label: str  # what its file calls it; each format makes an axis of it

    def numbered(self, number: int) -> "RankGroup":
        """Return the group with its number among groups of equal ranks and label; the first has none."""
        return self if number == 1 else self._replace(label=f"{self.label}\n{number}")


def unnumbered(label: str) -> str:
    """Return the label of a group without its number among equal groups."""
    return label.partition("\n")[0]


def told_apart(named: Iterable[tuple[str, RankGroup]]) -> dict[tuple[str, RankGroup], RankGroup]:
    """Return, by name and group, each group with its number among groups of other names, in the order of the names.

    A group without a name is taken to be the first.
    """
    names: defaultdict[RankGroup, set[str]] = defaultdict(set)
    for name, group in named:
        names[group].add(name)
    return {
        (name, group): group.numbered(number)
        for group, of in names.items()
        for number, name in (*enumerate(sorted(of - {""}), 1), (1, ""))
    }


def is_count(value: object, most: int) -> bool:
    """Return whether a value of a file is an integer from 0 to below `most`; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most


def told_ranks(values: object) -> tuple[int, ...]:
    """Return the ranks of a group that a file lists, which may be empty.

    Raises:
        ValueError: they are no list of different ranks.
    """
    if not isinstance(values, list | tuple) or not all(is_count(each, MOST_RANKS) for each in values):
        raise ValueError(f"must have a list of ranks below 2**24, got {str(values)[:40]}")
    if len(set(values)) < len(values):
        raise ValueError(f"must have each rank once in a group, got {str(values)[:40]}")
    return tuple(values)
