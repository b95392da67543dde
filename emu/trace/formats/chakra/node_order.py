"""The order of the nodes of one rank, sorted by their dependencies.

Chakra's converter drops callers that nothing else needs, so that a control dependency on a node that the file lacks is ignored,
where a data dependency on one is an error. It also writes the order of calls as data dependencies. Where control
dependencies contradict these, they are all ignored, as simulators of such traces do that take data dependencies alone.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from emu.trace.formats.chakra.chakra_node import ChakraNode, NodeFile

Waits = Mapping[int, frozenset[int]]


class OrderedNodes(NamedTuple):
    """The nodes of a file, each after all nodes that it depends on.

    Nodes without a dependency between them are sorted by their start.
    """

    nodes: list[ChakraNode]
    waits: Waits  # the nodes on which each depends, by number
    lost_callers: int  # control dependencies that were passed over


def nodes_in_order(file: NodeFile) -> OrderedNodes:
    """Return the nodes of a file in order.

    Raises:
        InputError: a node depends on one that the file lacks, or on itself by way of others; or two have one number.
    """
    if _is_in_order(file.nodes):  # as Emu writes them: a run of many ranks has millions
        return OrderedNodes(list(file.nodes), {node.id: frozenset(node.deps) for node in file.nodes}, 0)
    by_id = _nodes_by_id(file)
    callers = {node.id: [each for each in node.callers if each in by_id] for node in file.nodes}
    waits = {node.id: frozenset(node.deps) for node in file.nodes}
    with_callers = {number: of_node.union(callers[number]) for number, of_node in waits.items()}
    told = sum(len(node.callers) for node in file.nodes)
    found = _in_order(by_id, with_callers)
    if len(found) == len(by_id):
        return OrderedNodes(found, with_callers, told - sum(map(len, callers.values())))
    found = _in_order(by_id, waits)
    if len(found) < len(by_id):
        node = by_id[min(by_id.keys() - {each.id for each in found})]
        raise file.bad(node, "depends on itself, by way of others; break the circle, or convert the trace again")
    return OrderedNodes(found, waits, told)


def _is_in_order(nodes: Sequence[ChakraNode]) -> bool:
    """Return whether nodes are numbered 0, 1, ..., each after its dependencies, with start times that do not decrease."""
    start_us = 0
    for row, node in enumerate(nodes):
        if node.id != row or node.callers or node.start_us < start_us or max(node.deps, default=-1) >= row:
            return False
        start_us = node.start_us
    return True


def _in_order(by_id: Mapping[int, ChakraNode], waits: Waits) -> list[ChakraNode]:
    """Return nodes sorted by dependencies; nodes in a cycle and those that depend on them are left out."""
    missing = {number: len(of_node) for number, of_node in waits.items()}  # dependencies that are not in order yet
    follows: defaultdict[int, list[int]] = defaultdict(list)
    for number, of_node in waits.items():
        for each in of_node:
            follows[each].append(number)
    ready = [(by_id[number].start_us, number) for number, count in missing.items() if not count]
    heapify(ready)
    found = []
    while ready:
        found.append(by_id[heappop(ready)[1]])
        for later in follows[found[-1].id]:
            missing[later] -= 1
            if not missing[later]:
                heappush(ready, (by_id[later].start_us, later))
    return found


def _nodes_by_id(file: NodeFile) -> dict[int, ChakraNode]:
    """Return the nodes by their numbers.

    Raises:
        InputError: two have one number, or one depends on a node that the file lacks.
    """
    found: dict[int, ChakraNode] = {}
    for node in file.nodes:
        if node.id in found:
            raise file.bad(node, f"has the number of another node ({found[node.id].name[:60]}); write the trace again")
        found[node.id] = node
    for node in file.nodes:
        lacking = [dep for dep in node.deps if dep not in found]
        if lacking:
            raise file.bad(node, f"depends on node {lacking[0]}, which the file lacks; write or convert the trace again")
    return found
