"""RailX's equations 6-8, 12 and 13 on the rails and meshes that are built, and why equation 7 is not quite met there.

B = 100 GB/s a port, links of a mesh k n B with k = 4; 10 ns a hop in a node, 300 ns between nodes unless told.
"""

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import pytest

from collectives import torus
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.transform import on_channels
from emu.study.timing.collective import time_collective
from emu.topology.catalogue import build_topology
from emu.units import TICKS_PER_S

B, A, A_LOCAL = 100e9, 300e-9, 10e-9
RATE = "bandwidth=100GB/s"


def timed(line, collective, name, shape, size, *, channels=1, npus=None, plan=None):
    """Seconds on a built system; rank i on its i-th chip unless told."""
    n = shape if isinstance(shape, int) else prod(shape)
    plan = on_channels(plan or algorithm(collective, name).schedule(shape), channels)
    npus = np.arange(n) if npus is None else npus
    found = time_collective(operation(collective, n), plan, size // 4, 4, build_topology(line), npus.astype(np.int32))
    return int(found.end_fs.max()) / TICKS_PER_S


def a_second(line, seconds):
    """How many more seconds a second more of light between nodes costs."""
    return (seconds(f"{line},optical=100us") - seconds(f"{line},optical=1us")) / 99e-6


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("p", [3, 5, 8])
def test_a_ring_of_nodes_both_ways_takes_equation_6(collective, p):
    size = 4 * 10**4 * p * 2
    found = timed(f"railx:torus:m=1,n=1,nodes={p}x2,{RATE}", collective, "bidirectional-ring", p, size)
    assert found == pytest.approx((p - 1) * A + (p - 1) / p * size / (2 * B), rel=1e-9)


@pytest.mark.parametrize("p", [3, 5, 7])
def test_nodes_all_at_once_take_equation_12_on_the_two_rails_of_each_pair(p):
    """A node's p - 1 rails make its B; with two channels a message takes both of a pair."""
    size = 4 * 10**4 * p * 2
    line = f"railx:hyperx:m=1,n={p - 1},{RATE}"
    for collective in ("reduce_scatter", "all_gather"):
        found = timed(line, collective, "direct", p, size, channels=2)
        assert found == pytest.approx(A + (p - 1) / p * size / (2 * (p - 1) * B), rel=1e-9)


def chips_of_a_torus(m, nodes):
    """The chip at each place of the grid of m nodes x m nodes chips, row by row."""
    return np.arange((m * nodes) ** 2).reshape(nodes, nodes, m, m).transpose(0, 2, 1, 3).ravel()


def equation_7(side, size):
    """Before it rounds 4(mp - 1) up to 4mp and drops 1 / (mp)^2."""
    return 4 * (side - 1) * A + (1 - 1 / side**2) * size / (2 * B)


def torus_time(m, nodes, size, settings, plan=None):
    side = m * nodes
    line = f"railx:torus:m={m},n=1,nodes={nodes}x{nodes},{RATE},{settings}"
    return timed(line, "all_reduce", "torus-buckets", (side, side), size, npus=chips_of_a_torus(m, nodes), plan=plan)


@pytest.mark.parametrize(("m", "nodes"), [(1, 6), (2, 3), (4, 8)])
def test_a_torus_whose_links_are_all_alike_takes_equation_7(m, nodes):
    side, size = m * nodes, 16 * 10**4 * (m * nodes) ** 2
    assert torus_time(m, nodes, size, "k=1,latency=300ns") == pytest.approx(equation_7(side, size), rel=1e-9)


def test_faster_links_in_nodes_let_chips_run_ahead_and_cost_the_torus_of_section_3_1_a_step_of_32():
    """1 GB takes 5.11 ms, not 5.03: chips before a rail end a ring of the first dimension early and take light from others.

    It is not latency, for each hop in a node takes less of it; and where the rings of both dimensions keep step, as the
    equation has them, all takes no longer than it says.
    """
    size = 10**9 // (4 * 4 * 1024) * 4 * 4 * 1024
    expected, of_a_step = equation_7(32, size), size / 4 / 32 / B
    found = torus_time(4, 8, size, "k=4")
    assert found == torus_time(4, 8, size, "k=4,latency=10ns")
    assert 0.9 * of_a_step < found - expected < 1.1 * of_a_step
    free = torus.all_reduce((32, 32))
    in_step = replace(free, channel=(free.channel % 2).astype(free.channel.dtype))  # a queue for each direction
    rails = (1 - 1 / 1024) * size / (2 * B)
    assert rails < torus_time(4, 8, size, "k=4", in_step) < expected


def ring_equation_8(p, m, n, size):
    """With the local latency, a hop to and from a rail's end, and the terms in 1/m^2 and 1/p^2 that it leaves out."""
    local = 4 * (m - 1) * A_LOCAL + (1 - 1 / m**2) * size / (4 * n * B)
    return local + 4 * (p - 1) * (A + (m - 1) * A_LOCAL) + (1 - 1 / p**2) * size / (2 * m * n * B)


@pytest.mark.parametrize(
    ("m", "n", "p", "least"), [(2, 1, 3, 1), (2, 1, 8, 1), (2, 2, 4, 1), (4, 1, 3, 0.985), (4, 1, 8, 0.985)]
)
def test_rings_of_nodes_take_equation_8_on_a_torus_where_as_many_channels_as_ports_use_all_rails(m, n, p, least):
    """In larger meshes chips next to the rails run a little ahead."""
    shape, size = (p, p, m, m), 16 * 2500 * (p * m) ** 2
    line = f"railx:torus:m={m},n={n},nodes={p}x{p},{RATE}"
    found, expected = timed(line, "all_reduce", "railx-ring", shape, size, channels=n), ring_equation_8(p, m, n, size)
    assert least * expected * (1 - 1e-9) <= found <= expected * (1 + 1e-9)


def hyperx(p, m, n):
    return f"railx:hyperx:m={m},n={n},{RATE}", (p, p, m, m)


@pytest.mark.parametrize(("p", "m", "n"), [(3, 2, 1), (5, 2, 2), (9, 2, 4), (5, 4, 1)])
def test_all_nodes_at_once_pass_light_in_four_steps_whatever_their_number(p, m, n):
    line, shape = hyperx(p, m, n)
    size = 16 * prod(shape)
    assert a_second(
        line, partial(timed, collective="all_reduce", name="railx-hyperx", shape=shape, size=size)
    ) == pytest.approx(4)


@pytest.mark.parametrize(("p", "m", "n", "uneven"), [(3, 2, 1, 1), (5, 2, 2, 1), (9, 2, 4, 1), (5, 4, 1, 9 / 8)])
def test_all_nodes_at_once_take_a_byte_as_long_as_equation_13_says_where_their_rails_are_used_evenly(p, m, n, uneven):
    """A pair of nodes has two rails. In a mesh of 4 x 4 one of them is nearer to 9 of 16 chips, which take it."""
    line, shape = hyperx(p, m, n)
    unit = 16 * 2500 * prod(shape)
    more = [timed(line, "all_reduce", "railx-hyperx", shape, size) for size in (unit, 2 * unit)]
    expected = (1 - 1 / m**2) / (4 * n * B) + uneven * (1 - 1 / p**2) / (2 * m * n * B)
    assert (more[1] - more[0]) / unit == pytest.approx(expected, rel=1e-6)
