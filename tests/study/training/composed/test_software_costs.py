"""Software changes a topology: how long messages take, and which share of the links data reach."""

import pytest

from emu.model.stack.stack import parse_stack, spell_stack
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.training.composed.request_parts import goes_round
from emu.study.training.composed.software_costs import costed_topology
from emu.topology.catalogue import build_topology

NODE = build_topology("dgx-h100:adds=yes")
SERVERS = build_topology("servers:nodes=2")


def taken(words, algorithm, topology=NODE, size=2**26):
    (row,) = bench(costed_topology(parse_stack(words), topology), BenchRequest("all_reduce", algorithm, (size,)))
    return row.time_s


def test_half_of_the_bandwidth_takes_twice_as_long():
    assert taken("alpha=0s,bandwidth=0.5", "ring") == pytest.approx(2 * taken("alpha=0s", "ring"), rel=0.05)


def test_shares_are_of_tiers_and_the_last_of_all_others():
    links = costed_topology(parse_stack("bandwidth=0.5/0.9"), SERVERS).links
    shares = links.bandwidth_Bps / SERVERS.links.bandwidth_Bps
    assert {(int(d), float(s)) for d, s in zip(links.dimension, shares.round(6), strict=True)} == {(0, 0.5), (1, 0.9), (2, 0.9)}


def test_what_a_switch_adds_waits_for_it_twice_and_what_ranks_add_does_not():
    later, without = "alpha=1us,adding=10us", "alpha=1us"
    assert taken(later, "in-switch") - taken(without, "in-switch") == pytest.approx(20e-6, rel=1e-3)
    assert taken(later, "ring") == taken(without, "ring")
    plain = build_topology("switch:n=8,bandwidth=50GB/s,latency=500ns")
    assert costed_topology(parse_stack(later), plain).adding_fs == 0
    assert costed_topology(parse_stack(later), NODE).digest() != costed_topology(parse_stack(without), NODE).digest()


def test_what_is_assumed_is_told_and_nothing_where_nothing_is():
    told = costed_topology(parse_stack("alpha=1us,adding=2us,bandwidth=0.5/0.9"), NODE).assumptions[len(NODE.assumptions) :]
    assert len(told) == 3
    assert "0.5 (" in told[2]
    assert "0.9 (all others)" in told[2]
    assert costed_topology(parse_stack("launch=5us"), NODE) is NODE


def test_shares_are_read_and_written():
    words = "software=megatron,alpha=1us,adding=2us,bandwidth=0.5/0.9"
    assert spell_stack(parse_stack(words)) == words


@pytest.mark.parametrize(
    ("splits", "does"),
    [((0, 8, 0, 0), True), ((0, 0, 0, 8), True), ((8, 0, 0, 0), False), ((0, 4, 0, 4), False), ((0, 0), False), ((), False)],
)
def test_blocks_go_round_where_the_first_member_gives_all_to_one_other(splits, does):
    """Blocks go to the next member, or to the one before; what a member keeps goes nowhere."""
    assert goes_round(splits) == does
