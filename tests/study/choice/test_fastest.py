"""The choice is what timing every algorithm would choose, though few are timed; and no bound is beyond a time."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm, compact_schedule
from emu.collective.operation import operation
from emu.collective.schedule import RowsError, Schedule, Sends
from emu.collective.shape import ranks_of
from emu.errors import InputError
from emu.fabric import job_symmetry
from emu.fabric.ideal import ideal
from emu.fabric.lowering.circuit_turns import TornError
from emu.study.choice import fastest as room
from emu.study.choice.fastest import fastest
from emu.study.choice.race_progress import RACE
from emu.study.choice.site import Requirement, Site
from emu.study.timing import MOST_PARTS, CollectiveJob, chain_fs, claimed_bytes_fs, claimed_fs, time_bound, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.topology.topology import Circuits

LINK = "bandwidth=50GB/s,latency=500ns"
TORUS = f"torus:dims=4x4,{LINK}"
FABRICS = (
    TORUS,
    "dgx-h100:adds=yes",
    "fat-tree:radix=4,tiers=3",
    "servers:nodes=2",
    "ub-mesh:board",
    f"ring:n=7,{LINK}",
    "hpn:segment:dims=4x2",
    "infinitehbd:binary:nodes=16",
)
OPERATIONS = ("all_reduce", "all_gather", "all_to_all", "broadcast", "reduce", "dispatch")
SIZES = (1, 2**12, 2**22)


def by_turns(first: int) -> pytest.MarkDecorator:
    """Every operation on every fabric: half of them by turns, the others are slow."""
    pairs = [(turn, line, name) for i, line in enumerate(FABRICS) for turn, name in enumerate(OPERATIONS, i)]
    marked = [pytest.param(line, name, marks=pytest.mark.slow if (turn + first) % 2 else ()) for turn, line, name in pairs]
    return pytest.mark.parametrize(("line", "name"), marked)


def whole(name: str, n: int, elements: int) -> int:
    """Return so many elements or a few more, as the operation can have them."""
    return elements + -elements % operation(name, n).count_step


def taken_fs(found: Algorithm, site: Site, wanted: Requirement) -> float:
    """Return the ticks that an algorithm takes by all its rows; infinite where it cannot run there."""
    n = len(site.npus)
    try:
        plan = compact_schedule(found.operation, found.name, n, wanted.root, site.dims_for(found)).expand()
        op = operation(wanted.operation, n, wanted.root)
        timeline = time_collective(CollectiveJob(op, plan, wanted.elements, wanted.item_bytes, site.topology, site.placement()))
    except (InputError, TornError):
        return np.inf
    return np.inf if plan.helpers and not site.topology.adds else float(timeline.end_fs.max(initial=0))


@by_turns(0)
def test_what_is_chosen_is_what_timing_all_chooses(line: str, name: str) -> None:
    topology = build_topology(line)
    job = Site.first(topology).npus[:16]
    for npus, sizes in ((job, SIZES[::2]), (job[1:7:2], SIZES[1:2])):
        site = Site.of(topology, npus)
        for elements in sizes:
            wanted = Requirement(name, 0, whole(name, len(npus), elements), 4)
            times = {a.name: taken_fs(a, site, wanted) for _, a in ALGORITHMS if a.operation == name}
            best = min(times, key=lambda a: (times[a], a))
            with pytest.raises(InputError, match="can be timed on") if times[best] == np.inf else nullcontext():
                assert fastest(site, wanted).served.algorithm == best, (npus, elements)


def test_two_ranks_are_bound_by_the_bytes_of_a_claim_too():
    """Each of two ranks sends half of what both get, on a port of 1 GB/s."""
    [ring] = (found for _, found in ALGORITHMS if (found.operation, found.name) == ("all_gather", "ring"))
    topology, elements = build_topology("full-mesh:n=2,bandwidth=1GB/s,latency=0s"), 10**6
    least_fs = claimed_bytes_fs(ring, 2, topology, (0, 1), elements, 4)
    assert least_fs == pytest.approx(elements * 4 / 2 / 1e9 * 1e15, rel=0.01)


@by_turns(1)
def test_no_bound_is_beyond_the_time(line: str, name: str) -> None:
    topology = build_topology(line)
    site = Site.of(topology, Site.first(topology).npus[:16])
    n = len(site.npus)
    for found in (a for _, a in ALGORITHMS if a.operation == name and site.takes(a)):
        wanted = Requirement(name, 0, whole(name, n, 5000), 4)
        taken = taken_fs(found, site, wanted)
        shape = site.dims_for(found) or n
        plan = found.schedule(shape)
        if taken < np.inf:
            known = time_bound(CollectiveJob(operation(name, n), plan, wanted.elements, 4, topology, site.placement()))
            assert 0 < known.busiest_fs <= taken + len(plan.src), found.name
            assert 0 < known.chain_fs <= taken + len(plan.src), found.name
            assert claimed_fs(found, shape, topology) <= taken
            assert claimed_bytes_fs(found, shape, topology, site.npus, wanted.elements, 4) <= taken


def test_a_chain_of_messages_on_links_of_their_own_is_the_whole_time() -> None:
    topology = build_topology(f"ring:n=6,{LINK}")
    op, plan = operation("all_reduce", 6), algorithm("all_reduce", "ring").schedule(6)
    known = time_bound(CollectiveJob(op, plan, 6 * 1000, 4, topology, place(topology, 6)))
    assert known.chain_fs == pytest.approx(10 * (500e-9 + 4000 / 50e9) * 1e15, rel=1e-9)
    assert known.busiest_fs == pytest.approx(10 * 4000 / 50e9 * 1e15, rel=1e-9)
    assert known.messages == 60


def test_a_message_waits_for_those_of_its_queue() -> None:
    """Two messages of one rank to different ones, on channels of their own and on one."""
    topology = build_topology(f"full-mesh:n=3,{LINK}")
    for channel, bodies in ((0, 2), (1, 1)):
        rounds = [Sends(0, 1, 0), Sends(0, 2, 0, channel=channel)]
        plan, sizes = Schedule.build(3, 1, rounds), np.array([50_000])
        assert chain_fs(plan, sizes, topology, np.arange(3)) == pytest.approx((bodies * 1000 + 500) * 1e6)


def test_a_claim_that_is_exact_counts_the_longest_chain_of_messages() -> None:
    """Such a claim bounds the time on any fabric: here with a latency of 1 us, and slots that take no time."""
    for key, found in ALGORITHMS:
        claim = found.claim
        shapes = [shape for n in (2, 3, 5, 8, 9, 12) for shape in list(found.shapes(n))[:3]]
        for shape in shapes if claim else ():
            if not claim.exact(shape):
                continue
            built, classes = found.schedule(shape), len(claim.terms(shape))
            link_class = partial(claim.link_class, shape) if claim.link_class else None
            rates = {"bandwidth_Bps": [1e18] * classes, "latency_fs": [10**9] * classes}
            on = ideal(built, claim.fabric, link_class=link_class, **rates)
            sizes = np.ones(built.n_slots + len(built.temps), np.int64)
            chain = chain_fs(built, sizes, on, np.arange(built.n_participants))
            assert sum(alpha for alpha, _ in claim.terms(shape)) == int(chain / 1e9), (key, shape)


def test_bytes_that_are_claimed_of_one_port_are_sent_or_received_by_a_rank_or_passed_on_in_a_row() -> None:
    """Therefore no rank whose links together are no faster than that port does it in less time."""
    seen = 0
    for key, found in ALGORITHMS:
        claim, shapes = found.claim, [shape for n in (2, 3, 5, 8, 9, 12) for shape in list(found.shapes(n))[:3]]
        for shape in shapes if claim and claim.fabric == "rank" and claim.link_class is None else ():
            if not claim.exact(shape):
                continue
            built, op = found.schedule(shape), operation(found.operation, ranks_of(shape))
            parts = built.n_slots // op.n_blocks
            sizes, size = np.full(built.n_slots + len(built.temps), 1000), 1000 * parts * op.blocks_in_size
            away = built.src != built.dst
            ports = [np.bincount(ends[away], sizes[built.slot[away]]).max(initial=0) for ends in (built.src, built.dst)]
            on = ideal(built, "rank", bandwidth_Bps=1e9, latency_fs=0)
            chain = chain_fs(built, sizes, on, np.arange(built.n_participants)) / 1e6
            assert max(*ports, chain) == pytest.approx(float(claim.terms(shape)[0][1]) * size, rel=1e-6), (key, shape)
            assert (parts <= MOST_PARTS, built.helpers) == (True, 0), (key, shape)
            seen += 1
    assert seen > 100


@pytest.mark.parametrize(("fewer", "tries"), [(1, False), (0, True)])
def test_messages_are_counted_before_routes_are_tried(fewer: int, tries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, op = build_topology(TORUS), operation("all_reduce", 16)
    job = CollectiveJob(
        op, compact_schedule("all_reduce", "hyperx-direct", 16, 0, (4, 4)), 2**12, 4, topology, place(topology, 16)
    )
    known = time_bound(job)
    tried: list[object] = []
    plain = job_symmetry._keeps_routes
    monkeypatch.setattr(job_symmetry, "_keeps_routes", lambda *of: tried.append(of) or plain(*of))
    found = time_bound(job, known.messages - fewer)
    assert found.messages == known.messages > 1
    assert bool(tried) == tries == (found.end_fs > 0)


def test_what_cannot_be_faster_is_not_timed_and_what_claims_too_much_is_not_built(
    timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full mesh the direct way takes two messages: whatever claims three in a row is out."""
    built, site = [], Site.first(build_topology(f"full-mesh:n=16,{LINK}"))
    monkeypatch.setattr(
        room, "compact_schedule", lambda *asked: built.append(asked[1]) or compact_schedule(*asked)
    )  # what is built begins there
    assert fastest(site, Requirement("all_reduce", 0, 16, 4)).served.algorithm == "direct"
    assert "all_reduce direct" in timed
    assert not {"ring", "multi-ring", "recursive-doubling", "double-tree"} & set(built)
    assert not {"all_reduce railx-hyperx", "all_reduce torus-buckets"} & set(timed)


@pytest.mark.parametrize(("line", "is_built"), [("fat-tree:radix=4,tiers=3", False), ("dgx-h100:adds=yes", True)])
def test_what_needs_a_switch_that_adds_is_built_only_where_one_does(line: str, is_built: bool, monkeypatch) -> None:
    built, site, wanted = [], Site.first(build_topology(line)), Requirement("all_gather", 0, 2**12, 4)
    monkeypatch.setattr(room, "compact_schedule", lambda *asked: built.append(asked[1]) or compact_schedule(*asked))
    fastest.cache_clear()
    fastest(site, wanted)
    fastest.cache_clear()
    assert ("in-switch" in built) == is_built


@pytest.mark.parametrize("line", [f"full-mesh:n=16,{LINK}", "ub-mesh:dcn:dims=2x2x1x2x2x2"])
def test_what_claims_too_many_bytes_is_not_built_and_the_fastest_is_chosen(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rank sends the whole again and again, as recursive doubling does, others have ended before."""
    built, site, wanted = [], Site.first(build_topology(line)), Requirement("all_reduce", 0, 2**24, 4)
    times = {each.name: taken_fs(each, site, wanted) for each in room.fitting_algorithms("all_reduce", site)}
    monkeypatch.setattr(room, "compact_schedule", lambda *asked: built.append(asked[1]) or compact_schedule(*asked))
    fastest.cache_clear()
    assert fastest(site, wanted).served.algorithm == min(times, key=lambda name: (times[name], name))
    assert not {"recursive-doubling", "binary-exchange"} & set(built)
    built.clear()
    monkeypatch.setattr(room, "claimed_bytes_fs", lambda *_: 0.0)
    fastest.cache_clear()
    fastest(site, wanted)
    fastest.cache_clear()
    assert "recursive-doubling" in built


def test_what_has_more_messages_than_are_timed_for_a_choice_is_passed_over_but_not_the_default(
    timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site.first(build_topology("fat-tree:radix=4,tiers=3"))
    wanted = Requirement("all_reduce", 0, 2**20, 4)
    free = fastest(site, wanted)
    monkeypatch.setattr(room, "MOST_MESSAGES", 100)
    fastest.cache_clear()
    timed.clear()
    chosen = fastest(site, wanted)
    assert free.skipped == ()
    assert {"direct", "bidirectional-ring", "hyperx-direct"} <= set(chosen.skipped)
    assert "all_reduce ring" in timed
    assert chosen.served.algorithm not in chosen.skipped
    assert {f"all_reduce {name}" for name in chosen.skipped}.isdisjoint(timed)


@pytest.mark.parametrize("elements", [2**12, 2**20])
@pytest.mark.parametrize("line", [TORUS, "dgx-h100:adds=yes", "ub-mesh:board"])
def test_how_many_messages_are_few_changes_the_order_of_the_race_and_not_its_winner(monkeypatch, line, elements) -> None:
    """Algorithms of many messages come last, and win where they are the fastest."""
    monkeypatch.setattr(room, "LEAST_SAVING", 0.0)
    site, wanted, won = Site.first(build_topology(line)), Requirement("all_reduce", 0, elements, 4), set()
    for few in (0, 20, 60, 150, 2**16):
        monkeypatch.setattr(room, "LIGHT", few)
        fastest.cache_clear()
        won.add(fastest(site, wanted).served.algorithm)
    fastest.cache_clear()
    assert len(won) == 1


@pytest.mark.parametrize("elements", [2**12, 2**20])
@pytest.mark.parametrize("line", [TORUS, "dgx-h100:adds=yes", "ub-mesh:board", "fat-tree:radix=4,tiers=3"])
def test_of_many_messages_are_timed_that_can_save_a_percent_so_that_what_is_chosen_takes_at_most_so_much_more(
    monkeypatch, line, elements
) -> None:
    monkeypatch.setattr(room, "LIGHT", 0)
    site, wanted = Site.first(build_topology(line)), Requirement("all_reduce", 0, elements, 4)
    takes = {each.name: taken_fs(each, site, wanted) for each in room.fitting_algorithms("all_reduce", site)}
    fastest.cache_clear()
    assert takes[fastest(site, wanted).served.algorithm] <= min(takes.values()) / (1 - room.LEAST_SAVING)
    fastest.cache_clear()


def test_where_many_groups_ask_at_once_one_of_many_messages_must_promise_more_to_be_timed(monkeypatch) -> None:
    monkeypatch.setattr(room, "LIGHT", 0)
    monkeypatch.setattr(room, "MESSAGES_PER_SAVING", 1)
    monkeypatch.setattr(room, "MOST_SAVING", 1.0)
    timed, time_it = [], room.time_collective
    monkeypatch.setattr(room, "time_collective", lambda job: timed.append(job.name) or time_it(job))
    site, counts = Site.first(build_topology(TORUS)), []
    for groups in (1, 2**10):
        fastest.cache_clear()
        timed.clear()
        fastest(site, Requirement("all_reduce", 0, 2**12, 4, groups=groups))
        counts.append(len(timed))
    fastest.cache_clear()
    assert counts[1] < counts[0]


def test_where_every_algorithm_would_tear_the_optical_switches_none_is_chosen() -> None:
    turning = Circuits(lambda src, dst, _: (np.zeros((len(src), 1), np.int64), (src * 8 + dst)[:, None]), 5)
    on = replace(build_topology("switch:n=4,bandwidth=50GB/s,latency=1us"), circuits=turning)
    with pytest.raises(InputError, match=r"^choice: no algorithm of all_to_all can be timed on 4 ranks of switch.*; .* switch"):
        fastest(Site.first(on), Requirement("all_to_all", 0, 64, 4))


def test_what_needs_more_rows_than_can_be_timed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """130 elements are no 12 equal blocks, so that every row counts: 264 of a ring, 528 of a 2D ring."""
    topology = build_topology("torus:dims=3x4,bandwidth=1GB/s,latency=1us")
    monkeypatch.setattr("emu.fabric.lower.MAX_ROWS", 270)
    asked = Site.first(topology), Requirement("all_reduce", 0, 130, 4)
    with pytest.raises(RowsError, match="do not cut evenly among 12 ranks"):
        time_collective(
            CollectiveJob(
                operation("all_reduce", 12),
                compact_schedule("all_reduce", "2d-ring", 12),
                130,
                4,
                topology,
                place(topology, 12),
            )
        )
    fastest.cache_clear()
    assert fastest(*asked).served.algorithm not in ("2d-ring", "torus-buckets")
    monkeypatch.setattr("emu.fabric.lower.MAX_ROWS", 0)
    monkeypatch.setattr(room, "fitting_algorithms", lambda *_: [algorithm("all_reduce", "2d-ring")])
    fastest.cache_clear()
    with pytest.raises(
        InputError, match=r"choice: no algorithm of all_reduce can be timed on 12 ranks of torus.*; all_reduce "
    ):
        fastest(*asked)


def test_where_all_need_a_switch_that_adds_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "fitting_algorithms", lambda *_: [algorithm("all_reduce", "in-switch")])
    with pytest.raises(InputError, match=r"3 ranks of ring:n=3,.*; all need a switch that adds, or are too large; name one"):
        fastest(Site.first(build_topology(f"ring:n=3,{LINK}")), Requirement("all_reduce", 0, 3, 4))


def test_a_race_says_which_algorithm_it_times_and_how_many_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told, timed = [], room._Race.end_fs

    def end_fs(race: room._Race, name: str) -> float:
        told.append((name, RACE.text()))
        return timed(race, name)

    monkeypatch.setattr(room._Race, "end_fs", end_fs)
    monkeypatch.setattr(room, "recall_entry", lambda *_: None)  # nothing is kept from an earlier race
    fastest.__wrapped__(Site.first(build_topology(TORUS)), Requirement("all_reduce", 0, 2**20, 4))
    assert len(told) > 1
    assert all(text.startswith(f"timing all_reduce {name} on 16 ranks, ") for name, text in told)
    lefts = [int(text.split(", ")[1].split()[0]) for _, text in told]
    assert sorted(lefts, reverse=True) == lefts
    assert lefts[0] >= len(told) - 1
    assert RACE.text() == ""
