"""`emu repro railx`: the command, and what its rows rest on: fabrics, rings, packets; the rows are in test_rows.py."""

from dataclasses import replace

import networkx
import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection
from launch.papers.railx import times, traffic, training
from launch.papers.railx.counts import LINES, line_cost, value
from launch.papers.railx.traffic import latency, saturated_throughput

HOP, PACKET = 10, 4  # cycles of a hop; of a packet, which has 4 flits, at a port


def test_the_command_prints_a_table_and_json(emu) -> None:
    done = emu("repro", "railx", "--table", "3")
    assert done.code == 0
    assert next(line for line in done.out.splitlines() if line.startswith("rx-t3-Hx7-2ft-cost")).split()[1:3] == [
        "5822",
        "5822",
    ]
    told = emu("repro", "railx", "--table", "3", "--json").json
    assert [row["verdict"] for row in told["rows"]] == ["met", "met", "missed", "met"]
    assert "prices are from RailX" in told["assumptions"][0]


def test_a_packet_that_meets_no_other_takes_its_hop_and_its_own_length() -> None:
    assert latency("full-mesh:n=64,bandwidth=50GB/s,latency=300ns", 0.5) == pytest.approx(HOP + PACKET, rel=0.01)


def test_packets_of_a_torus_take_the_mean_distance_that_networkx_finds() -> None:
    word, load = "torus:dims=24x24,bandwidth=50GB/s,latency=300ns", 0.03
    hops = networkx.average_shortest_path_length(networkx.grid_2d_graph(24, 24, periodic=True))
    found, double = (latency(each, load) for each in (word, word.replace("50GB/s", "100GB/s")))  # two ports a link
    assert found == pytest.approx(hops * HOP + PACKET, rel=0.05)
    assert 0.4 * PACKET < found - double < 0.8 * PACKET


def test_packets_wait_for_one_another_the_more_the_nearer_a_fabric_is_to_what_it_can_carry() -> None:
    word = "torus:dims=8x8,bandwidth=50GB/s,latency=300ns"
    most = saturated_throughput(word)
    waits = [latency(word, share * most) for share in (0.2, 0.5, 0.8)]
    assert waits[0] < waits[1] < waits[2]
    assert waits[1] - waits[0] < waits[2] - waits[1]


def test_a_chip_of_each_fabric_of_figure_14_has_eight_ports_of_one_rate() -> None:
    """A mesh counts by its own ports, so that RailX has k=1 here; a chip of it has 8 with k=1 wherever it is."""
    for each in (traffic.BY_K[1], *traffic.OTHERS, traffic.TREE):
        links, n = build_topology(each.word).links, build_topology(each.word).n_npus
        out = np.bincount(links.src, links.bandwidth_Bps)[:n]
        assert out.min() == out.max() == traffic.PORTS * traffic.PORT_BPS, each.word


def test_all_algorithms_of_figure_15_run_on_one_fabric_with_the_latencies_that_the_paper_prints(monkeypatch) -> None:
    asked = []
    for name in ("collective_s", "plan_s"):
        monkeypatch.setattr(times, name, lambda word, *_: asked.append(word) or 1.0)
    for name in (times.RING, times.FLAT, times.TREE):
        times.all_reduce_s.__wrapped__(name, 2, times.LARGE)
    assert len(asked) == 3
    (word,) = set(asked)
    links = build_topology(word).links
    assert {(int(d > 0), t) for d, t in zip(links.dimension.tolist(), links.latency_fs.tolist(), strict=True)} == {
        (0, 10_000_000),
        (1, 300_000_000),
    }


@pytest.mark.parametrize(("m", "nodes"), [(4, 2), (4, 3), (2, 3)])
def test_two_rings_go_through_all_chips_over_links_that_they_do_not_share(m, nodes) -> None:
    found = times.chip_rings(m, nodes)
    n = (m * nodes) ** 2
    assert (np.sort(found, axis=1) == np.arange(n)).all()
    steps = [step for ring in found.tolist() for step in zip(ring, ring[1:] + ring[:1], strict=True)]
    assert len(set(steps)) == 4 * n
    links = build_topology(f"railx:torus:m={m},n=1,nodes={nodes}x{nodes}").links
    assert set(steps) <= set(zip(links.src.tolist(), links.dst.tolist(), strict=True))


def test_a_ring_of_chips_takes_all_four_ports_and_nearly_its_least_time() -> None:
    n, size = 64, times.LARGE
    assert times.ring(4, 2, size) == pytest.approx((1 - 1 / n) * size / (2 * 100e9), rel=1e-3)
    for size in (times.SMALL, times.LARGE):
        least = times.ring_bound(4, 2, size)
        assert least <= times.ring(4, 2, size) < 1.1 * least


def test_the_chips_of_a_node_are_a_ring_of_neighbours() -> None:
    for m in (2, 4, 6):
        y, x = np.divmod(times._loop(m), m)
        assert sorted((y * m + x).tolist()) == list(range(m * m))
        assert (np.abs(y - np.roll(y, 1)) + np.abs(x - np.roll(x, 1)) == 1).all()


def test_global_bandwidth_of_every_line_is_that_of_its_built_halves() -> None:
    for name in ("2FT", "Tap13", "TorOCS", "RO", "Rx4"):
        topology = build_topology(LINES[name])
        half = topology.n_npus / 2 * 36 * 50e9
        assert value(name, "gbw") == pytest.approx(100 * bisection(topology)[0] / half, rel=1e-9)
        assert line_cost(name).injection_GBps == pytest.approx(36 * 50)


def _fewest_rails(nodes: int, wanted: int, row: int) -> int:
    """Return the fewest rails of a split that joins some nodes of a row with so many cables at each of its middles."""
    if nodes == 1:
        return 0
    sizes = [size for size in (2, 4, 8, 16, 32, 64) if nodes % size == 0]
    return min(
        min(_rails(size, way, wanted, row) for way in "CK") + _fewest_rails(nodes // size, wanted, row) for size in sizes
    )


def _rails(size: int, way: str, wanted: int, row: int) -> int:
    """Return the rails that a ring, or an all-to-all, of so many nodes needs; one of 4 cannot be made."""
    if way == "C":
        return -(-wanted * size // (2 * row))
    return 1000 if size == 4 else (size - 1) * -(-wanted * size // (2 * (size // 2) ** 2 * row))


def test_no_split_joins_64_nodes_of_a_row_by_36_rails_with_a_wider_middle_than_that_of_the_table() -> None:
    cables = bisection(build_topology(LINES["Rx4"]))[0] / 50e9 / 64
    assert _fewest_rails(64, int(cables), 64) <= 36 < _fewest_rails(64, int(cables) + 1, 64)


@pytest.mark.parametrize(("rails", "cables"), [("K8@7+C2@2", 32), ("K8@7+C2@4", 64), ("C4@5+C4@6", 40), ("K8@7+K2@1", 16)])
def test_a_split_of_rails_is_cut_as_the_search_counts(rails, cables) -> None:
    n = sum(int(part.partition("@")[2]) for part in rails.split("+"))
    assert bisection(build_topology(f"railx:split:m=1,n={n},rails={rails}/C2@{n}"))[0] == 2 * cables * 50e9
    groups = [(int(part[1]), part[0]) for part in rails.split("+")]
    assert sum(_rails(size, way, cables, 16) for size, way in groups) <= n
    assert sum(_rails(size, way, cables + 1, 16) for size, way in groups) > n


def test_volumes_of_table_4_are_counted_and_would_show_another_plan(monkeypatch) -> None:
    (_, found, formula), *_ = training._VOLUMES["rx-t4-4"]()
    assert found == formula
    monkeypatch.setattr(training, "_PLAN", replace(training._PLAN, microbatch=1))
    for kept in (training._sent, training._generated):
        kept.cache_clear()
    (_, other, formula), *_ = training._VOLUMES["rx-t4-4"]()
    assert other == formula / 2
    for kept in (training._sent, training._generated):
        kept.cache_clear()


def test_equation_10_is_timed_with_more_communication_and_with_more_computation() -> None:
    comm = training._step_s("comm")
    beside = [training._step_s(f"alone {number}") for number in (1, 4)]
    assert beside[0] < comm < beside[1]


def test_equation_9_is_compared_in_one_and_two_dimensions_where_the_ranks_of_a_node_share_its_rails() -> None:
    cases = {name.removeprefix("s, "): found for name, found, _ in times._eq9()}
    assert {"1D, m=2, p=3, n=1", "1D, m=2, p=3, n=2", "2D, m=2, p=3, n=1", "2D, m=2, p=3, n=2"} < cases.keys()
    size, two_thirds = 16 * 10**4 * 36, 2 / 3
    for n in (1, 2):
        by_bytes = cases[f"1D, m=2, p=3, n={n}"] - 4 * 310e-9  # a hop between nodes, and one inside
        assert by_bytes == pytest.approx(two_thirds * size / (n * 100e9 / 2))  # V / (n B / m)
