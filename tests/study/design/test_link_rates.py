"""Machines that differ in the rates of their links alone: which are compared, and which can be no better than another."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from emu.study.design.link_rates import LinkRates, MachineGroups, link_rates
from emu.topology.catalogue import build_topology


@pytest.mark.parametrize(
    ("text", "setting", "slower", "faster"),
    [
        ("rail-only:dims=8x8,{}", "latency", "500ns", "100ns"),
        ("nvl:72:{}", "bandwidth", "25GB/s", "50GB/s"),
        ("ub-mesh:board:{}", "lane_rate", "7GB/s", "8GB/s"),
        ("infinitehbd:dims=1x8x2x4,tp=16,{}", "latency", "1us", "100ns"),
    ],
)
def test_a_rate_orders_machines_of_one_structure(text, setting, slower, faster):
    pairs = [(setting, value) for value in (slower, faster)]
    low, high = (link_rates(build_topology(text.format("=".join(each))), [each]) for each in pairs)
    assert low.structure == high.structure
    assert low.values != high.values
    assert all(a <= b for a, b in zip(low.values, high.values, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rail-only:dims=8x8,planes=1", "rail-only:dims=8x8,planes=2"),
        ("rail-only:dims=8x8", "rail-only:dims=4x16"),
        ("hpn:pod:dims=2x2x2,aggs=2", "hpn:clos:dims=2x2x2,aggs=2"),
        ("railx:hyperx:m=2,n=2", "railx:hyperx-nonminimal:m=2,n=2"),
    ],
)
def test_what_routes_differently_is_not_compared(one, other):
    first, second = (link_rates(build_topology(text), [("text", text)]) for text in (one, other))
    assert first.structure != second.structure


@pytest.mark.parametrize("seed", range(5))
def test_points_that_are_no_better_are_those_of_a_comparison_of_all_pairs(seed):
    numbers = Random(seed)
    rates = [tuple(float(numbers.randint(0, 3)) for _ in range(2)) for _ in range(60)]
    kinds = [numbers.choice("ab") for _ in range(60)]
    costs = np.array([[float(numbers.randint(0, 2)) for _ in range(2)] for _ in range(60)])
    every = enumerate(zip(kinds, rates, strict=True))
    machines = [(LinkRates(kind, rate), 8) if number % 7 else None for number, (kind, rate) in every]

    def nowhere_slower(one: int, other: int) -> bool:
        alike = None not in (machines[one], machines[other]) and kinds[one] == kinds[other] and one != other
        return alike and all(a >= b for a, b in zip(rates[one], rates[other], strict=True))

    def beats(one: int, other: int) -> bool:
        equal = rates[one] == rates[other] and (costs[one] == costs[other]).all()
        return nowhere_slower(one, other) and bool((costs[one] <= costs[other]).all()) and (not equal or one < other)

    groups = MachineGroups(machines)
    expected = [other for other in range(60) if any(beats(one, other) for one in range(60))]
    assert 10 < len(expected) < 50
    assert groups.no_better(costs).tolist() == expected
    for point in range(60):
        assert groups.slower_than(point).tolist() == [other for other in range(60) if nowhere_slower(point, other)]


def test_settings_that_are_no_rate_decide_the_structure_and_a_bare_number_is_none():
    topology = build_topology("rail-only:dims=8x8")
    structures = [link_rates(topology, [("setting", value)]).structure for value in ("1", "2", "0.5", "1us", "2us", "5GB/s")]
    assert len(set(structures[:4])) == 4
    assert len(set(structures[3:])) == 1


@pytest.mark.parametrize("name", ["message_fs", "adding_fs"])
def test_a_machine_that_takes_longer_for_messages_or_sums_is_slower_and_of_the_same_structure(name):
    topology = build_topology("rail-only:dims=8x8")
    quick, slow = (link_rates(replace(topology, **{name: fs}), []) for fs in (10, 20))
    assert quick.structure == slow.structure
    assert quick.values != slow.values
    assert all(a >= b for a, b in zip(quick.values, slow.values, strict=True))


def test_machines_whose_optical_switches_turn_faster_or_slower_are_compared():
    topology = build_topology("infinitehbd:binary:nodes=8,k=2")
    assert topology.circuits is not None
    quick, slow = (link_rates(replace(topology, circuits=replace(topology.circuits, switching_fs=fs)), []) for fs in (10, 20))
    assert quick.structure == slow.structure
    assert [a - b for a, b in zip(quick.values, slow.values, strict=True) if a != b] == [10]


def test_links_in_another_order_of_rates_are_of_another_structure():
    """Rows or columns have more bandwidth: which of them it is makes no other structure, but other values."""
    wide, tall = (
        link_rates(build_topology(f"rail-only:dims=8x8,column={column}GB/s,row={row}GB/s"), [])
        for column, row in ((50, 25), (25, 50))
    )
    assert wide.structure == tall.structure
    assert sorted(wide.values) == sorted(tall.values)
    assert not all(a <= b for a, b in zip(wide.values, tall.values, strict=True))
    assert not all(a >= b for a, b in zip(wide.values, tall.values, strict=True))


def test_machines_whose_links_have_other_shares_of_the_rate_of_their_wires_are_not_compared():
    topology = build_topology("rail-only:dims=8x8")
    structures = {
        link_rates(replace(topology, shares=shares), []).structure for shares in ((), (0.9, 1.0, 1.0), (1.0, 0.9, 1.0))
    }
    assert len(structures) == 3
