"""Algorithms that words name for one axis of a plan (`dp.all_gather=ring`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import algorithm
from emu.collective.choice import Choice, operation_of
from emu.collective.operation import OPERATIONS
from emu.errors import InputError
from emu.registry import nearest, unknown
from emu.study.choice.site import Site, choosers, fitting_algorithms
from emu.topology.topology import Topology
from emu.trace.trace import Events, Kind

_MOST = 64  # groups of an axis that are looked at: they are of one size, and differ in their place alone


def axes_named(words: Sequence[str]) -> dict[str, list[str]]:
    """Return, by axis, the words of `--algorithm` for that axis only; they stay whole, such as `dp.all_gather=ring`."""
    found: dict[str, list[str]] = {}
    for word in words:
        axis, dot, _ = word.partition("=")[0].rpartition(".")
        if dot:
            found.setdefault(axis, []).append(word)
    return found


def operations_by_axis(ranks: Iterable[tuple[Events, Sequence[str]]]) -> dict[str, set[str]]:
    """Return the collectives that ranks ask for on each axis.

    Args:
        ranks: Of each rank its events, and the axis of each group that they number.
    """
    found: dict[str, set[str]] = {}
    for events, axes in ranks:
        for row in np.flatnonzero(events.kind == Kind.COLLECTIVE).tolist():
            found.setdefault(axes[events.group[row]], set()).add(events.name[row])
    return found


def check_axes(
    words: Sequence[str],
    groups: Mapping[str, Sequence[Sequence[int]] | I64],
    operations: Mapping[str, Collection[str]],
    topology: Topology,
) -> None:
    """Check words of `--algorithm` for an axis: the axis communicates, has the operation, and can use the algorithm.

    Args:
        words: Words of --algorithm, as typed.
        groups: For each axis, the NPUs of each of its groups.
        operations: For each axis, the collectives that its ranks ask for.
        topology: The topology with these NPUs.

    Raises:
        InputError: The message names the nearest axis or algorithm.
    """
    for axis, own in axes_named(words).items():
        if axis not in groups:
            raise unknown("axis with communication", axis, groups)
        sites = [Site.of(topology, tuple(map(int, group))) for group in groups[axis][:_MOST]]
        for word in own:
            operation, known = operation_of(word.partition("=")[0]), operations.get(axis, ())
            if operation in OPERATIONS and operation not in known:
                raise unknown(f"collective on {axis}", operation, known)
            check_taken(word, axis, sites)


def check_taken(word: str, axis: str, sites: Sequence[Site]) -> None:
    """Refuse an algorithm that no group of its axis can use.

    Args:
        word: The operation and the algorithm, such as `all_gather=ring`.
        axis: The axis.
        sites: The NPUs of each group of the axis, as far as groups are looked at.

    Raises:
        InputError: No group can use it; the message names the most similar algorithm that the first group can use.
    """
    asked, _, served = word.partition("=")
    if served in choosers():
        return
    operation, name = operation_of(asked), Choice.parse((word,)).by_operation[asked]
    found = algorithm(operation, name)
    if any(site.takes(found) and (site.topology.adds or not found.needs_adding) for site in sites):
        return
    others = [each.name for each in fitting_algorithms(operation, sites[0])]
    where = f"groups of {len(sites[0].npus)} ranks of {sites[0].topology.name}"
    raise InputError(
        f"--algorithm: {operation} of {axis} must be one that {where} can have, got {served!r}; {nearest(name, others)}"
    )
