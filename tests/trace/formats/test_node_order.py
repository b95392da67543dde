"""The order of an execution trace's nodes, held against a sort that looks at every node each time."""

import random

import pytest

from emu.errors import InputError
from emu.trace.formats.chakra.chakra_node import ChakraNode, NodeFile
from emu.trace.formats.chakra.node_order import OrderedNodes, nodes_in_order


def node(number: int, deps: tuple[int, ...] = (), callers: tuple[int, ...] = (), start_us: int = 0) -> ChakraNode:
    return ChakraNode(number, f"n{number}", 4, deps, callers, start_us, 1, "", {})


def ordered(*nodes: ChakraNode) -> OrderedNodes:
    return nodes_in_order(NodeFile("run.0.et", {}, nodes))


def sorted_slowly(nodes: list[ChakraNode], waits: dict[int, frozenset[int]]) -> list[int]:
    """The numbers in order: of the nodes that wait for none any more, always the earliest, and of these the lowest number."""
    found: list[int] = []
    while True:
        ready = [(n.start_us, n.id) for n in nodes if n.id not in found and waits[n.id] <= set(found)]
        if not ready:
            return found
        found.append(min(ready)[1])


@pytest.mark.parametrize("seed", range(60))
def test_nodes_come_after_what_they_depend_on_and_the_earliest_first(seed: int) -> None:
    random_ = random.Random(seed)
    numbers = random_.sample(range(40), random_.randint(1, 12))
    nodes = []
    for i, number in enumerate(numbers):
        deps, callers = (tuple(random_.sample(numbers[:i], random_.randint(0, min(2, i)))) for _ in range(2))
        lost = (random_.randrange(40, 50),) * (random_.random() < 0.3)
        nodes.append(
            node(number, deps, (*callers, *lost) if random_.random() < 0.5 else (*lost, *callers), random_.randrange(4))
        )
    random_.shuffle(nodes)
    found = ordered(*nodes)
    waits = {n.id: frozenset((*n.deps, *(each for each in n.callers if each in numbers))) for n in nodes}
    assert [n.id for n in found.nodes] == sorted_slowly(nodes, waits)
    assert found.waits == waits
    assert found.lost_callers == sum(each not in numbers for n in nodes for each in n.callers)


@pytest.mark.parametrize("seed", range(30))
def test_callers_that_contradict_the_data_are_all_passed_over(seed: int) -> None:
    random_ = random.Random(seed)
    numbers = random_.sample(range(30), 6)
    chain = [node(n, (numbers[i - 1],) if i else (), start_us=random_.randrange(4)) for i, n in enumerate(numbers)]
    late = random_.randrange(1, 6)  # the first is called by it, and it comes after the first
    chain[0] = chain[0]._replace(callers=(numbers[late], 50))
    chain[late] = chain[late]._replace(callers=(numbers[0],))
    found = ordered(*random_.sample(chain, 6))
    assert [n.id for n in found.nodes] == numbers
    assert found.waits == {n.id: frozenset(n.deps) for n in chain}
    assert found.lost_callers == 3


def test_nodes_that_are_in_order_already_stay_so() -> None:
    nodes = node(0), node(1, (0,), start_us=5), node(2, (0, 1), start_us=5), node(3, start_us=7)
    assert ordered(*nodes) == OrderedNodes(
        list(nodes), {0: frozenset(), 1: frozenset({0}), 2: frozenset({0, 1}), 3: frozenset()}, 0
    )
    for changed in (
        (node(0), node(1, start_us=3), node(2, start_us=2)),
        (node(0), node(1, (2,)), node(2)),
        (node(1), node(0)),
        (node(0, callers=(1,)), node(1)),
    ):
        waits = {n.id: frozenset((*n.deps, *n.callers)) for n in changed}
        assert [n.id for n in ordered(*changed).nodes] == sorted_slowly(list(changed), waits)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (
            (node(3, (4,)), node(4, (3,)), node(1), node(5, (4,))),
            r"node 3 \(n3\) of 'run.0.et' depends on itself, by way of others",
        ),
        ((node(1, (1,)), node(0)), r"node 1 \(n1\) of 'run.0.et' depends on itself"),
        ((node(4), node(7), node(4)), r"node 4 \(n4\) of 'run.0.et' has the number of another node \(n4\)"),
        ((node(4), node(7, (4, 9, 8))), r"node 7 \(n7\) of 'run.0.et' depends on node 9, which the file lacks"),
    ],
)
def test_what_has_no_order_is_refused(nodes: tuple[ChakraNode, ...], why: str) -> None:
    with pytest.raises(InputError, match=f"^execution trace: {why}"):
        ordered(*nodes)
