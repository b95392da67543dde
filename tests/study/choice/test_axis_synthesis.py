"""Schedules that are made for all groups of an axis at once: what each group gets of the links, and what that saves."""

import numpy as np
import pytest

from emu.arrays import I64
from emu.collective.algorithm import compact_schedule
from emu.collective.choice import Request
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.model.plan.plan import group_rows
from emu.model.plan.plan_text import parse_plan
from emu.study.choice import chooser as choosing
from emu.study.choice.axis_synthesis import Group, algorithms_together, shared_topology, ticks_together
from emu.study.choice.chooser import choice_on
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement, Site, canonical_group
from emu.study.choice.synthesis_choice import made_algorithm
from emu.study.training.estimate import EstimateRequest, estimate, prepare
from emu.study.training.step_choice.algorithm_search import AlgorithmSearch
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device

# Two leaves of two NPUs, a spine, and one link from each leaf to it: both groups of distant NPUs share these links.
TAPERED = "fat-tree:pgft:down=2x2,up=1x1,parallel=1x1"
ACROSS: tuple[Group, ...] = ((0, 2), (1, 3))
WIDER = "fat-tree:pgft:down=4x4,up=1x2,parallel=1x1"
MADE, BOTH = "synthesized", "auto+synthesized"


def groups_of(sizes: dict[str, int], axis: str) -> tuple[Group, ...]:
    """Return the groups of an axis of a plan whose ranks are on the NPUs of their numbers."""
    rows = group_rows(axis, {**dict.fromkeys(("tp", "cp", "ep", "etp", "dp", "pp"), 1), **sizes})
    return tuple(map(tuple, rows.tolist()))


def alone(topology: Topology, groups: tuple[Group, ...], wanted: Requirement) -> dict[Group, object]:
    """Return the algorithm that is made for each group as if there were no other."""
    return {group: made_algorithm(Site.of(topology, canonical_group(topology, group)), wanted) for group in groups}


def test_a_link_that_two_groups_cross_gives_each_of_them_half_of_its_rate() -> None:
    topology = build_topology(TAPERED)
    shared, first = shared_topology(topology, ACROSS)
    links, npus = topology.links, topology.n_npus
    between_switches = (links.src >= npus) & (links.dst >= npus)
    share = shared.links.bandwidth_Bps / links.bandwidth_Bps
    assert between_switches.any()
    assert share.tolist() == np.where(between_switches, 0.5, 1.0).tolist()
    assert shared.links.latency_fs.tolist() == links.latency_fs.tolist()
    assert first == {(0, 2): (0, 2), (1, 3): (0, 2)}  # which are translations of one another


def test_groups_whose_links_differ_are_not_alike() -> None:
    _, first = shared_topology(build_topology(TAPERED), ((0, 2), (1, 3), (0, 1), (2, 3)))
    assert first[0, 2] == first[1, 3] != first[0, 1] == first[2, 3]
    threes = build_topology("fat-tree:pgft:down=3x3,up=1x1,parallel=1x1")
    _, first = shared_topology(threes, ((0, 3), (1, 4), (2, 6), (5, 7)))  # the link to the last leaf has two groups, not three
    assert first[0, 3] == first[1, 4] != first[2, 6]


def test_groups_that_share_no_link_are_served_as_if_each_were_alone() -> None:
    topology, wanted = build_topology(TAPERED), Requirement("all_reduce", 0, 2**16, 4)
    within: tuple[Group, ...] = ((0, 1), (2, 3))
    assert shared_topology(topology, within)[0] is topology
    assert algorithms_together(topology, within, wanted, MADE) == alone(topology, within, wanted)


# Collectives of 4 MiB on dp, and the share of the time with schedules for each group alone.
SAVED = [
    (WIDER, {"tp": 4, "dp": 4}, "reduce_scatter", 0.61),
    ("hammingmesh:boards=1x1,side=4", {"tp": 2, "dp": 4, "pp": 2}, "all_gather", 0.67),
    ("railx:torus:m=2,n=2,nodes=2x2", {"tp": 4, "dp": 4}, "all_to_all", 0.85),
]


@pytest.mark.parametrize(("name", "sizes", "operation", "share"), SAVED)
def test_all_groups_together_take_less_than_with_schedules_for_each_alone(
    name: str, sizes: dict[str, int], operation: str, share: float
) -> None:
    topology, groups, wanted = build_topology(name), groups_of(sizes, "dp"), Requirement(operation, 0, 2**20, 4)
    served = algorithms_together(topology, groups, wanted, MADE)
    assert set(served) == set(groups)
    before = ticks_together(topology, alone(topology, groups, wanted), wanted)  # type: ignore[arg-type]
    assert ticks_together(topology, served, wanted) < before * share
    assert algorithms_together(topology, groups, wanted, BOTH) == served


def test_made_for_each_alone_they_stay_where_shares_save_nothing() -> None:
    topology, wanted = build_topology("hammingmesh:boards=1x1,side=4"), Requirement("all_to_all", 0, 2**20, 4)
    groups = groups_of({"tp": 2, "dp": 8}, "dp")
    assert shared_topology(topology, groups)[0] is not topology
    assert algorithms_together(topology, groups, wanted, MADE) == alone(topology, groups, wanted)


def test_what_auto_takes_serves_where_all_groups_are_as_fast_by_it() -> None:
    topology, wanted = build_topology(TAPERED), Requirement("all_gather", 0, 4, 4)
    taken = {group: fastest(Site.of(topology, group), wanted).served for group in ACROSS}
    assert algorithms_together(topology, ACROSS, wanted, BOTH) == taken
    gathered = wanted._replace(operation="gather")
    assert algorithms_together(topology, ACROSS, gathered, MADE) == {}
    assert set(algorithms_together(topology, ACROSS, gathered, BOTH)) == set(ACROSS)


def test_links_whose_share_is_too_slow_leave_the_schedules_that_are_made_alone() -> None:
    topology = build_topology(f"{TAPERED},bandwidth=1500B/s")
    wanted = Requirement("all_reduce", 0, 64, 4)
    assert algorithms_together(topology, ACROSS, wanted, MADE) == alone(topology, ACROSS, wanted)


@pytest.mark.parametrize("root", [0, 3])
def test_a_broadcast_for_all_groups_begins_at_its_root(root: int) -> None:
    topology, groups = build_topology(WIDER), groups_of({"tp": 4, "dp": 4}, "dp")
    served = algorithms_together(topology, groups, Requirement("broadcast", root, 2**18, 4), MADE)
    assert served != alone(topology, groups, Requirement("broadcast", root, 2**18, 4))
    for each in served.values():
        prove(compact_schedule("broadcast", each.algorithm, 4, root), operation("broadcast", 4, root))


def rows_of(axis: str) -> I64:
    """Return the groups of an axis of a job of 4 ranks."""
    return group_rows(axis, {"tp": 2, "cp": 1, "ep": 1, "etp": 1, "dp": 2, "pp": 1})


def test_a_chooser_looks_at_all_groups_of_an_axis_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, npus = build_topology(WIDER), np.array([0, 1, 4, 5])
    placed: tuple[Group, ...] = ((0, 4), (1, 5))
    request = Request("all_gather", (1, 3), elements=2**18, axis="dp")
    together, by_itself = (choice_on(topology, (MADE,), "float32", npus=npus, groups=g).algorithm_for for g in (rows_of, None))
    wanted = Requirement("all_gather", 0, 2**18, 4)
    assert together(request) == algorithms_together(topology, placed, wanted, MADE)[1, 5]
    assert by_itself(request) == alone(topology, placed, wanted)[1, 5]
    assert together(request) != by_itself(request)
    for other in (request._replace(axis="tp"), request._replace(axis=""), request._replace(ranks=(0, 1))):
        assert together(other) == by_itself(other)
    assert together(request._replace(operation="gather")) == by_itself(request._replace(operation="gather"))
    monkeypatch.setattr(choosing, "MOST_TOGETHER", 1)
    assert together(request) == by_itself(request)


@pytest.mark.parametrize(("words", "tried"), [((BOTH,), True), (("auto", f"dp.all_reduce={BOTH}"), True), (("auto",), False)])
def test_a_search_for_the_algorithms_of_a_step_tries_made_schedules(words: tuple[str, ...], tried: bool) -> None:
    device = Device("a-device", {"bfloat16": 1e15, "float32": 1e15}, hbm_Bps=1e13)
    request = EstimateRequest("llama-tiny", parse_plan("dp=4,microbatch=1", global_batch=4, seq=32), algorithms=words)
    search = AlgorithmSearch(prepare(request, build_topology(TAPERED), device).on_fabric(device))
    assert (MADE in search.others) is tried


@pytest.mark.parametrize(("word", "share"), [(MADE, 0.97), (BOTH, 0.995)])
def test_a_step_is_shorter_by_schedules_for_all_groups(monkeypatch: pytest.MonkeyPatch, word: str, share: float) -> None:
    device = Device("a-device", {"bfloat16": 1e15, "float32": 1e15}, hbm_Bps=1e13)
    request = EstimateRequest("llama-tiny", parse_plan("dp=4,tp=4,microbatch=1", global_batch=4, seq=32), algorithms=(word,))
    after = estimate(request, build_topology(WIDER), device)
    monkeypatch.setattr(choosing.ChooserOnNpus, "_groups_together", lambda *_: ())
    before = estimate(request, build_topology(WIDER), device)
    assert after.step_time_s < before.step_time_s * share
