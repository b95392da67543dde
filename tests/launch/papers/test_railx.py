"""`emu repro railx`: the command, and packets at random; its rows are in test_rows.py."""

import networkx
import pytest

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
    found, double = latency(word, load), latency(word, load, ports_a_link=2)  # the same bits then take half as long
    assert found == pytest.approx(hops * HOP + PACKET, rel=0.05)
    assert 0.4 * PACKET < found - double < 0.8 * PACKET


def test_packets_wait_for_one_another_the_more_the_nearer_a_fabric_is_to_what_it_can_carry() -> None:
    word = "torus:dims=8x8,bandwidth=50GB/s,latency=300ns"
    most = saturated_throughput(word)
    waits = [latency(word, share * most) for share in (0.2, 0.5, 0.8)]
    assert waits[0] < waits[1] < waits[2]
    assert waits[1] - waits[0] < waits[2] - waits[1]
