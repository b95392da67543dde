"""Machines that differ only in the rates of their links, and the rule that links which are nowhere faster make no step faster.

The rule is an assumption. It holds for every lower bound of a step. A step itself breaks it where an algorithm is chosen for
the faster links that serves the whole step worse; `python -m benchmarks.design brute` looks for that. P points, A things.
"""

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column, digest
from emu.errors import InputError
from emu.study.design.pareto import pareto_front
from emu.topology.topology import Topology
from emu.units import parse_bandwidth, parse_time


class LinkRates(NamedTuple):
    """The rates of the links of a machine, and a digest of all else that decides how long a step takes on it."""

    structure: str
    values: tuple[float, ...]  # bandwidths and negative times, so that a larger value is faster


def link_rates(topology: Topology, settings: Iterable[tuple[str, str]]) -> LinkRates:
    """Return the rates of a machine's links.

    Args:
        topology: The machine.
        settings: Its settings by name. Those that are no bandwidth and no time decide how its router leads messages.
    """
    links, circuits = topology.links, topology.circuits
    values, group = _in_order(np.column_stack([links.bandwidth_Bps, -links.latency_fs.astype(np.float64)]))
    equal = replace(links, bandwidth_Bps=column(group + 1, np.float64), latency_fs=np.zeros_like(links.latency_fs))
    still = None if circuits is None else replace(circuits, switching_fs=0)
    plain = replace(topology, name="", links=equal, message_fs=0, adding_fs=0, circuits=still)  # all rates are left out
    structure = digest((plain.digest(), topology.shares, sorted(each for each in settings if not _is_rate(each[1]))))
    times = (topology.message_fs, topology.adding_fs, circuits.switching_fs if circuits else 0)
    return LinkRates(structure, (*values.ravel().tolist(), *(-float(time) for time in times)))


def _in_order(rows: F64) -> tuple[F64, I64]:
    """Return the different rows in the order in which they first occur, and the number of each row among them."""
    found, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return found[order], place[number.reshape(-1)]


def _is_rate(value: str) -> bool:
    """Return whether the value of a setting is a bandwidth or a time; a bare number is neither."""
    for parse in (parse_bandwidth, parse_time):
        with suppress(InputError):
            parse(value)
            return not value.replace(".", "").isdigit()
    return False


class MachineGroups:
    """Points in groups of which the machines differ only in the rates of their links and in what they cost."""

    def __init__(self, machines: Sequence[tuple[LinkRates, Hashable] | None]) -> None:
        """Group the points.

        Args:
            machines: Of each point, the rates of its links and what else must be equal, such as its device; None: no group.
        """
        alike: dict[Hashable, dict[int, tuple[float, ...]]] = {}
        for number, each in enumerate(machines):
            if each is not None:
                alike.setdefault((each[0].structure, each[1]), {})[number] = each[0].values
        self._groups = [(np.array([*group]), np.array([*group.values()])) for group in alike.values()]
        self._group_of = {number: at for at, (group, _) in enumerate(self._groups) for number in group.tolist()}

    def slower_than(self, point: int) -> I64:
        """Return the numbers of the other points whose links are nowhere faster than those of a point."""
        if point not in self._group_of:
            return np.zeros(0, np.int64)
        group, rates = self._groups[self._group_of[point]]
        return np.asarray(group[(rates <= rates[group == point]).all(axis=1) & (group != point)])

    def no_better(self, costs: F64) -> I64:
        """Return the numbers of the points beside which another one has links nowhere slower, and costs nowhere higher.

        Of points that are equal in both, the first is left out of the result.

        Args:
            costs: [P, A] what each point takes, of several things.
        """
        found = [np.zeros(0, np.int64)]
        for group, rates in self._groups:
            values = np.column_stack([rates, -costs[group]])
            front = pareto_front(values)
            _, first = np.unique(values[front], axis=0, return_index=True)
            found.append(np.delete(group, front[first]))
        return np.sort(np.concatenate(found))
