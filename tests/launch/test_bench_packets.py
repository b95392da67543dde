"""`emu bench --fabric packets`: a collective by packets, the fluid time beside it, and what is refused in a line."""

import re
from typing import Any

import pytest

from emu.errors import RunError
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.graph import Graph
from emu.fabric.packet_fabric import PacketFabric
from launch.front.measurements import bench

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
ASKED = ("bench", "all_to_all", "--algorithm", "at-once", "--topology", SWITCH, "--size", "8MiB", "--timing-only")


def test_a_collective_by_packets_is_told_beside_the_fluid_time(emu) -> None:
    told = emu(*ASKED, "--fabric", "packets").out
    assert "virtual time (engine: packets)" in told
    assert "packets on switch:n=8" in told
    assert "the fullest ports: switch 8 to NPU " in told
    assert "max-min fairly" not in told
    assert "no public source: pause_above_bytes" in told


def test_the_row_has_what_only_packets_know(emu) -> None:
    (row,) = emu(*ASKED, "--fabric", "packets", "--json").json
    (fluid,) = emu(*ASKED, "--json").json
    assert fluid["packets"] is None
    found = row["packets"]
    assert found["fluid_s"] == fluid["time_s"] < row["time_s"]
    assert found["packet_hops"] == 2 * 56 * (2**20 // 4096)
    assert found["over"] == found["trimmed"] == 0
    assert len(found["fullest"]) == 3


@pytest.mark.parametrize("kind", ["roce", "ultra-ethernet", "infiniband", "nvlink", "ub", "tcp"])
def test_every_kind_of_network_carries_a_ring_near_the_fluid_time(emu, kind: str) -> None:
    ring = ("bench", "all_reduce", "--algorithm", "ring", "--topology", SWITCH, "--size", "8MiB", "--timing-only")
    (row,) = emu(*ring, "--fabric", "packets", "--network", kind, "--json").json
    assert 1 < row["time_s"] / row["packets"]["fluid_s"] < 1.15


def test_cells_and_perturbed_starts_are_settings_of_a_run(emu) -> None:
    (row,) = emu(
        *ASKED, "--fabric", "packets:cell=16KiB,seed=3", "--network", "roce:route=in-turn", "--perturb", "2", "--json"
    ).json
    assert row["packets"]["packet_hops"] == 2 * 56 * (2**20 // 16384)
    assert row["spread"]["seeds"] == 2
    assert row["spread"]["least_s"] <= row["spread"]["most_s"]


REFUSED = {
    ("packets:cell=1KiB", ""): "network: cell must be whole packets of 4 KiB, got '1 KiB'",
    (
        "packets:cell=16MiB",
        "",
    ): "network: cell must be at most the largest message, 1048576 B, got '16777216 B'; take a smaller cell",
    (
        "packets:events=1000",
        "",
    ): "packets: events must be 114688 or more, got 1000; a run has about 114688 events, "
    "which takes about 0 s: allow 229376, as pauses, credits and packets that are sent again add some, "
    "or take larger cells or a smaller size",
    ("packets:cel=8KiB", ""): "--fabric packets: unknown setting 'cel'; did you mean cell?",
    ("packets:x=1", ""): "--fabric packets: unknown setting 'x'; it takes cell, seed, events",
    ("packets", "roce:rout=hash"): "--network roce: unknown setting 'rout'; did you mean route?",
    ("packet", ""): "--fabric must be fluid or packets, such as packets:cell=8KiB, got 'packet'",
    ("fluid:seed=1", ""): "--fabric must be without settings, got 'fluid:seed=1'; the fluid fabric has no packets",
    ("fluid", "roce"): "--fabric must be packets where --network is given, got 'fluid'; the fluid fabric has no packets",
    ("packets", "roc"): "network: the kind must be one of roce, ultra-ethernet, infiniband, nvlink, ub, tcp, got 'roc'",
    (
        "packets",
        "roce:pause_above=1GiB",
    ): "network: pause_above_bytes must be at most the queue's size, 416000000, got 1073741824",
    ("packets", "roce:resume_below=1MiB"): "network: resume_below_bytes must be above 0 and at most pause_above_bytes, 262144, "
    "got 1048576",
    ("packets", "infiniband:credit=1KiB"): "network: credit_bytes must be at least a packet with its headers, 4.025 KiB, "
    "got '1 KiB'; take more credits or a smaller cell",
    ("packets", "roce:route=spray"): "network: route must be one of hash, in-turn, random, adaptive, least-loaded, entropy, "
    "entropy-avoid, got 'spray'",
    ("packets", "roce:entropies=8"): "network: entropies must be left out with route=hash, got 8; only route=entropy or "
    "entropy-avoid uses it",
    ("packets", "roce:round_trip=4us"): "network: round_trip_fs must be left out with congestion=none, got 4000000000; only "
    "congestion=nscc, dctcp, window or cubic, or queues or marks in round trips uses it",
    ("packets", "ultra-ethernet:entropies=3"): "network: entropies must be a power of 2, at most 65536, got 3",
    ("packets", "ultra-ethernet:round_trip=fast"): "round_trip must be a time of 0 or more such as 500ns or 1.5us, got 'fast'",
    (
        "packets",
        "ultra-ethernet:acks=none",
    ): "network: acks must be in-order or any where senders are told of what came, got 'none'",
    ("packets", "roce:lanes=two"): "lanes must be a whole number, 0 or more, got 'two'",
    ("packets", "roce:window_round_trips=-1"): "window_round_trips must be a number, 0 or more, got '-1'",
    ("packets", "roce:lanes=0"): "network: lanes must be 1 or more, got 0",
    ("packets:seed=9223372036854775808", ""): "seed must be a whole number, at most 9223372036854775807, "
    "got '9223372036854775808'",
    ("packets", "roce:lanes=65"): "network: lanes must be at most 64, got 65",
    ("packets", "roce:ack=4GiB"): "network: ack_bytes must be at most 2147483647, got 4294967296",
    (
        "packets",
        "roce:packets_per_ack=1000000",
    ): "network: packets_per_ack times the payload of a packet or cell must be at most 2147483647, got 4096000000",
    ("packets", "infiniband:ack=1MiB"): "network: ack_bytes must be at most credit_bytes, 131904, got 1048576",
    (
        "packets",
        "tcp:queue=1MiB,queue_round_trips=1",
    ): "network: queue_round_trips must be left out, or 0, where queue is given, got '1'",
    (
        "packets",
        "tcp:mark_from_round_trips=0.5",
    ): "network: mark_from_round_trips must be at most mark_to_round_trips, 0.2, got '0.5'",
    (
        "packets",
        "tcp:queue=1KiB",
    ): "network: the room of a queue must be at least a packet or cell with its headers, 1538 B, where packets are trimmed, "
    "got '1024 B'; take a larger queue or a smaller cell",
    ("packets", "roce:hash"): "--network must be a kind and settings, such as roce:route=in-turn, got 'roce:hash'",
}


@pytest.mark.parametrize("asked", REFUSED, ids=" ".join)
def test_what_does_not_fit_is_refused_in_one_line(emu, asked: tuple[str, str]) -> None:
    fabric, network = asked
    done = emu(*ASKED, "--fabric", fabric, *(("--network", network) if network else ()))
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"emu: {REFUSED[asked]}"


@pytest.mark.parametrize("name", ["seed", "events"])
def test_a_number_of_thousands_of_digits_is_refused_in_one_line(emu, name: str) -> None:
    done = emu(*ASKED, "--fabric", f"packets:{name}=" + "9" * 5000)
    assert (done.code, done.out) == (2, "")
    assert "got '99999999999999999999... (5000 digits)'" in done.err.splitlines()[-1]


def test_a_room_in_bytes_takes_the_place_of_one_in_round_trips(emu) -> None:
    rows = [
        emu(*ASKED, "--fabric", "packets", "--network", f"tcp:queue={room}", "--json").json[0]["packets"]
        for room in ("16KiB", "100MiB")
    ]
    assert rows[0]["trimmed"] > 0 == rows[1]["trimmed"]
    assert rows[0]["over"] == 0


def test_the_fluid_time_beside_packets_has_the_launch_too(emu) -> None:
    quick, slow = (emu(*ASKED, "--fabric", "packets", "--stack", f"launch={time}", "--json").json[0] for time in ("0s", "1ms"))
    assert slow["time_s"] - quick["time_s"] == pytest.approx(1e-3)
    assert slow["packets"]["fluid_s"] - quick["packets"]["fluid_s"] == pytest.approx(1e-3)


def test_a_fabric_without_links_carries_nothing_and_pauses_never(emu) -> None:
    args = (
        "--topology",
        "full-mesh:n=1,bandwidth=1GB/s,latency=0s",
        "--size",
        "1MiB",
        "--fabric",
        "packets",
        "--network",
        "roce",
        "--json",
    )
    (row,) = emu("bench", "all_reduce", *args).json
    assert (row["time_s"], row["packets"]["packet_hops"], row["packets"]["pauses"], row["packets"]["paused_s"]) == (0, 0, 0, 0)


def test_equal_times_over_perturbed_starts_do_not_vary(emu) -> None:
    one = ("bench", "broadcast", "--topology", SWITCH, "--size", "64KiB", "--timing-only", "--fabric", "packets")
    done = emu(*one, "--algorithm", "binomial", "--perturb", "3")
    assert "packets on switch" in done.out
    assert "varies" not in done.out


def test_the_report_says_that_auto_chose_by_the_fluid_fabric(emu) -> None:
    chosen = "auto chose the algorithm by its time in the fluid fabric"
    auto = ("bench", "all_reduce", "--algorithm", "auto", "--topology", SWITCH, "--size", "1MiB", "--timing-only")
    assert chosen in emu(*auto, "--fabric", "packets").out
    assert chosen not in emu(*auto).out
    assert chosen not in emu(*ASKED, "--fabric", "packets").out


def test_a_torus_by_credits_ends_on_two_lanes(emu) -> None:
    torus = ("--topology", "torus:dims=4x4,bandwidth=50GB/s,latency=500ns", "--fabric", "packets", "--network", "infiniband")
    (row,) = emu("bench", "all_to_all", "--algorithm", "at-once", "--size", "16MiB", "--timing-only", *torus, "--json").json
    assert row["packets"]["lanes"] == 2
    assert "(lane " in row["packets"]["fullest"][0]["port"]


ALL = ("bench", "all_reduce", "--algorithm", "all", "--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns")


def test_an_algorithm_beyond_the_budget_has_its_reason_and_the_others_their_rows(emu) -> None:
    asked = (*ALL, "--begin", "16KiB", "--end", "64KiB", "--factor", "4")
    every = emu(*asked, "--fabric", "packets", "--json").json
    events = sorted(row["packets"]["events"] for row in every)
    rows = emu(*asked, "--fabric", f"packets:events={events[-1] * 3 // 4}", "--json").json
    assert [row["algorithm"] for row in rows] == [row["algorithm"] for row in every]
    stopped = [row for row in rows if row.get("why_not")]
    assert 0 < len(stopped) < len(rows)
    assert all("packets: events must be " in row["why_not"] and row["at_least_s"] > 0 for row in stopped)
    timed = {(row["algorithm"], row["size_bytes"]): row["time_s"] for row in rows if "time_s" in row}
    assert timed.items() <= {(row["algorithm"], row["size_bytes"]): row["time_s"] for row in every}.items()
    told = emu(*asked, "--fabric", f"packets:events={events[-1] * 3 // 4}").out
    assert f"stopped: {stopped[0]['algorithm']}" in told
    assert "fastest: 16 KiB: " in told


def test_an_algorithm_that_deadlocks_has_its_reason_and_the_others_their_rows(emu, monkeypatch) -> None:
    run = PacketFabric.run

    def stuck(self: PacketFabric, graph: Graph, *of: Any) -> PacketRun:
        if graph.n_tasks == 2 * 3 * 4:  # the ring's
            raise RunError("packets: a circle")
        return run(self, graph, *of)

    monkeypatch.setattr(PacketFabric, "run", stuck)
    rows = emu(*ALL, "--size", "64KiB", "--fabric", "packets", "--json").json
    by = {row["algorithm"]: row for row in rows}
    assert by["ring"]["why_not"] == "packets: a circle"
    assert not by["ring"]["fastest"]
    assert by["direct"]["time_s"] > 0
    assert sum(row["fastest"] for row in rows) == 1


def test_the_first_reason_is_told_where_none_could_be_timed(emu, tmp_path) -> None:
    for shown in ((), ("--json",), ("--png", str(tmp_path / "all.png"))):
        done = emu(*ALL, "--size", "64KiB", "--fabric", "packets:events=1", *shown)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[-1].startswith("emu: bench: no algorithm could be timed; ")
        assert ": packets: events must be " in done.err


def test_a_picture_is_of_the_first_topology_on_which_an_algorithm_was_timed(emu) -> None:
    few = max(row["packets"]["events"] for row in emu(*ALL, "--size", "64KiB", "--fabric", "packets", "--json").json)
    two = ["switch:n=64,bandwidth=50GB/s,latency=500ns", ALL[-1]]
    found = bench("all_reduce", algorithm="all", topology=two, size="64KiB", fabric=f"packets:events={2 * few}")
    assert "fastest: none could be timed" in found.text()
    assert f"ranks of {two[1]}" in found.figure().get_suptitle() + found.figure().axes[0].get_title()


def test_an_algorithm_whose_messages_are_smaller_than_a_cell_is_stopped_and_the_others_have_their_rows(emu) -> None:
    rows = emu(*ALL, "--size", "256KiB", "--fabric", "packets:cell=128KiB", "--json").json
    by = {row["algorithm"]: row for row in rows}
    assert by["ring"]["why_not"].startswith("network: cell must be at most the largest message, 65536 B, got '131072 B'")
    assert by["recursive-doubling"]["time_s"] > 0


def test_a_stopped_row_has_no_least_time_where_packets_choose_their_paths(emu) -> None:
    asked = (*ALL, "--size", "256KiB", "--fabric", "packets:cell=128KiB", "--network")
    by = {route: emu(*asked, f"roce:route={route}", "--json").json for route in ("hash", "adaptive")}
    least = {route: [row["at_least_s"] for row in rows if "why_not" in row] for route, rows in by.items()}
    assert all(least["hash"])
    assert least["adaptive"] == [None] * len(least["hash"])
    assert "stopped: ring of 256 KiB: network: cell" in emu(*asked, "roce:route=adaptive").out


def test_no_algorithm_is_left_out_by_its_bound_where_packets_choose_their_paths(emu, monkeypatch) -> None:
    monkeypatch.setattr("emu.study.measure.bench.LIGHT", 0)
    asked = (*ALL, "--size", "64KiB", "--fabric", "packets", "--json")
    timed = {
        route: sum("time_s" in row for row in emu(*asked, "--network", f"roce:route={route}").json)
        for route in ("hash", "adaptive")
    }
    rows = emu(*asked, "--network", "roce:route=adaptive").json
    assert timed["hash"] < timed["adaptive"] == len(rows)


@pytest.mark.parametrize("kind", ["roce", "nvlink", "ub"])
def test_the_events_that_a_refusal_recommends_are_enough(emu, kind: str) -> None:
    refused = emu(*ASKED, "--fabric", "packets:events=1", "--network", kind).err
    allow = re.search(r"allow (\d+)", refused)
    assert allow is not None
    (row,) = emu(*ASKED, "--fabric", f"packets:events={allow[1]}", "--network", kind, "--json").json
    assert row["packets"]["events"] <= int(allow[1])


def test_a_run_whose_tasks_are_over_is_not_stopped_by_its_budget(emu) -> None:
    """The last events are acknowledgements, which nothing waits for."""
    (row,) = emu(*ASKED, "--fabric", "packets", "--network", "roce", "--json").json
    least = row["packets"]["events"] - 1
    (again,) = emu(*ASKED, "--fabric", f"packets:events={least}", "--network", "roce", "--json").json
    assert again["time_s"] == row["time_s"]
