"""The times of a plan's own requests: which are asked for first, and what counts while they are not known."""

from typing import Any

import pytest

from emu.model.generate.item import Ask
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.request_times.least_times import LeastTimes, PlacedLeastTimes, PortLeastTimes
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.topology.catalogue import build_topology
from emu.trace.matching.role_requests import MESSAGE

RACK = build_topology("ub-mesh:rack")
PLAN = parse_plan("tp=4,dp=2,pp=2,microbatch=1", global_batch=8, seq=512)
RATES = Rates.of(RACK)
LINK = 56e9  # bytes per second


def placed(*axes: str) -> PlacedGroups:
    return PlacedGroups.of(RACK, PLAN, axes, RATES, ports_of(RACK, PLAN.world))


def own(times: Any, axes: frozenset[str] = frozenset()) -> PlacedLeastTimes:
    return PlacedLeastTimes(RATES, PLAN, placed("tp", "dp", "pp"), times, axes)


@pytest.mark.parametrize(
    ("axis", "place", "priority"), [("tp", 0, 0), ("tp", 1, 1), ("etp+ep", 1, 1), ("dp", 0, 2), ("dp", 1, 2)]
)
def test_layers_of_the_first_place_are_timed_first_then_those_of_others_then_the_ends(
    axis: str, place: int, priority: int
) -> None:
    times, ask = own({}), Ask(axis, "all_gather", 2**20, "bfloat16")
    unknown = times.collective(place, ask)
    assert not unknown.is_final
    ports = PortLeastTimes(RATES, PLAN, times.where).collective(place, ask)
    assert (unknown.left_s, unknown.delivered_s) == (ports.left_s, ports.delivered_s)
    [(name, (found, request))] = times.missing.items()
    assert (found, request.name) == (priority, name)
    known = own({name: LeastTime(1.0, 2.0)})
    assert known.collective(place, ask) == LeastTime(1.0, 2.0)
    assert known.missing == {}


def test_a_request_on_an_axis_whose_algorithm_a_word_names_is_another() -> None:
    ask, names = Ask("tp", "all_gather", 2**20, "bfloat16"), []
    for axes in (frozenset[str](), frozenset({"tp"}), frozenset({"dp"})):
        times = own({}, axes)
        times.collective(0, ask)
        names += [*times.missing]
    assert names[0] == names[2] != names[1]


def test_a_message_of_a_ring_is_between_neighbours_and_a_collective_within_the_whole_group() -> None:
    """Four NPUs of a row have three links to one another, and one to each neighbour."""
    least, size = PortLeastTimes(RATES, PLAN, placed("tp", "dp", "pp")), 2**20
    sent = least.collective(0, Ask("tp", MESSAGE, size, "int8"))
    assert sent.left_s == pytest.approx(size / LINK)
    gathered = least.collective(0, Ask("tp", "all_gather", size, "int8"))
    assert gathered.delivered_s == pytest.approx(RATES.alpha_s + size * 3 / 4 / (3 * LINK))
    nowhere = LeastTimes(RATES, PLAN).collective(0, Ask("tp", "all_gather", size, "int8"))
    assert nowhere.delivered_s == pytest.approx(RATES.alpha_s + size * 3 / 4 / max(RATES.out, RATES.into))


def test_messages_between_places_are_kept_once_all_of_them_are_known() -> None:
    """Until then those that are not known have the time of their ports, and are asked for last."""
    times = own({})
    unknown = times.messages(1, 4096)
    assert list(unknown) == list(PortLeastTimes(RATES, PLAN, times.where).messages(1, 4096))
    assert {priority for priority, _ in times.missing.values()} == {2}
    assert times.where.messages == {}
    named = dict.fromkeys(times.missing, LeastTime(3.0, 4.0))
    known = PlacedLeastTimes(RATES, PLAN, times.where, named)
    assert list(known.messages(1, 4096)) == [LeastTime(3.0, 4.0)] * 2
    assert list(times.messages(1, 4096)) == [LeastTime(3.0, 4.0)] * 2
    assert list(times.messages(1, 8192)) != [LeastTime(3.0, 4.0)] * 2
