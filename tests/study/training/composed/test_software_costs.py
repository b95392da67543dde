"""Software changes a topology: how long messages take, and which share of the links data reach."""

from dataclasses import replace

import pytest

from emu.model.stack.stack import Stack, parse_stack, spell_stack
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.training.composed.request_parts import goes_round
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device

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


@pytest.mark.parametrize(("cores", "sms", "share"), [(100, 20, 0.2), (16, 20, 0.99), (0, 20, 0.3), (100, 0, 0.3)])
def test_a_collective_takes_its_cores_from_products_but_never_all_of_them(cores, sms, share):
    """Where the stack or the device does not say how many, the device's own share holds."""
    device = replace(Device("a-device", {"float32": 1e12}, hbm_Bps=1e12), cores=cores, contention=0.3)
    assert costed_device(replace(Stack(), sms=sms), device).contention == pytest.approx(share)


def test_the_time_to_launch_a_request_is_that_of_the_device_and_that_of_the_software():
    device = replace(Device("a-device", {"float32": 1e12}, hbm_Bps=1e12), request_overhead_s=3e-6)
    assert costed_device(parse_stack("launch=5us"), device).request_overhead_s == pytest.approx(8e-6)


@pytest.mark.parametrize(
    ("words", "kernel", "scale"),
    [
        ("software=megatron,attention=unfused", "own", ""),
        ("software=megatron,attention=fa3,fp8=delayed", "fa3", "tensor"),
        ("software=megatron,fp8=block", "cudnn", "block"),
        ("attention=fa3,fp8=row", "fa3", "row"),
    ],
)
def test_a_device_has_the_attention_of_the_software_if_it_is_one_kernel_and_the_scales_of_its_fp8(words, kernel, scale):
    """A scale that is known from the step before is one of a whole tensor."""
    device = replace(Device("a-device", {"float32": 1e12}, hbm_Bps=1e12), attention_kernel="own", fp8_scale="other")
    found = costed_device(parse_stack(words), device)
    assert (found.attention_kernel, found.fp8_scale) == (kernel, scale)


def test_messages_take_the_time_of_the_software_besides_that_of_the_topology():
    slow = replace(NODE, message_fs=7)
    assert costed_topology(parse_stack("alpha=1us"), slow).message_fs == 10**9 + 7


def test_links_without_a_name_are_told_by_the_number_of_their_tier():
    line = replace(NODE, tiers=NODE.tiers[:1])
    [*_, told] = costed_topology(parse_stack("bandwidth=0.5/0.6/0.7/0.8"), line).assumptions
    assert told == f"data reach 0.5 ({line.tiers[0]}), 0.6 (tier 1), 0.7 (tier 2), 0.8 (all others) of the links' bandwidth"


def test_software_that_says_nothing_of_bandwidth_leaves_the_shares_of_the_topology():
    shared = replace(NODE, shares=(0.5, 0.75))
    assert costed_topology(parse_stack("alpha=1us"), shared).shares == (0.5, 0.75)
    assert costed_topology(parse_stack("alpha=1us,bandwidth=0.9"), shared).shares == (0.9,)
