"""Topologies to put in the place of another: others of its family, the nearest in size first."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import log

from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.description.topology_file import is_file
from emu.topology.topology import Topology


def family_of(line: str) -> str:
    """Return the first word of a topology's name."""
    return line.partition(":")[0]


def swapped(line: str, other: str) -> Topology:
    """The topology of `other` under the name of `line`, with the bill and the sentences of `line`.

    A bill and the sentences are made of the settings, most of them: a test that reads no more than these sees no difference.
    """
    of_line = build_topology(line)
    return replace(build_topology(other), name=line, bill=of_line.bill, assumptions=of_line.assumptions)


def others(line: str, most: int) -> list[str]:
    """Up to `most` other lines of the family whose links differ, the nearest in NPUs first, of every variant one first."""
    if is_file(line):
        return []
    npus, links = _size(line)
    family = [(other, *_size(other)) for other in _lines(family_of(line))]
    differ = [(abs(log(n / npus)), other) for other, n, theirs in family if theirs != links]
    ordered = [other for _, other in sorted(differ)]
    first = {_variant(other): other for other in reversed(ordered)}  # of each variant the first one stays
    nearest = [other for other in ordered if first[_variant(other)] == other]
    return list(dict.fromkeys([*ordered[:2], *nearest, *ordered]))[:most]


def _variant(line: str) -> str:
    return ":".join(word for word in line.split(":") if "=" not in word)


@cache
def _lines(family: str) -> tuple[str, ...]:
    return tuple(_family(family))


def _family(family: str) -> Iterator[str]:
    for name, blueprint in TOPOLOGIES:
        if family_of(name) == family:
            yield from (":".join(filter(None, (name, settings))) for settings in (*blueprint.examples, *blueprint.full))


@cache
def _size(line: str) -> tuple[int, str]:
    built = build_topology(line)
    return built.n_npus, replace(built, name="").digest()
