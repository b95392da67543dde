"""The choice between the fastest algorithm of the catalogue and a schedule that is made for the request."""

from dataclasses import replace
from typing import Any

import pytest

from emu.collective.choice import AlgorithmOnDims, Request
from emu.errors import InputError
from emu.study.choice import synthesis_choice
from emu.study.choice.chooser import choice_on, is_automatic, library_words, made_where_faster
from emu.study.choice.fastest import end_fs, fastest
from emu.study.choice.site import Requirement, Site
from emu.study.choice.synthesis_choice import faster_algorithm, made_algorithm
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

BOTH = "auto+synthesized"
BOARD = "ub-mesh:board"
RAILS = "hpn:rail-only:dims=2x2x2,aggs=2"
# Of these the catalogue serves the small ones as fast or faster, and a made schedule the large one on rails.
ASKED = [(BOARD, "all_gather", 2**8), (RAILS, "all_reduce", 2**8), (RAILS, "all_gather", 2**20)]


@pytest.mark.parametrize(("topology", "operation", "elements"), ASKED)
def test_the_faster_one_by_the_fabric_serves_and_of_equal_ones_that_of_auto(
    topology: str, operation: str, elements: int
) -> None:
    site, wanted = Site.first(build_topology(topology)), Requirement(operation, 0, elements, 4)
    by_auto, made = fastest(site, wanted).served, made_algorithm(site, wanted)
    assert made is not None
    taken = {name: end_fs(site, wanted, name) for name in (by_auto.algorithm, made.algorithm)}
    chosen = faster_algorithm(site, wanted)
    assert taken[chosen.algorithm] == min(taken.values())
    assert (chosen == made) == (taken[made.algorithm] < taken[by_auto.algorithm])


def test_both_kinds_are_chosen_among_the_requests_above() -> None:
    chosen = [faster_algorithm(Site.first(build_topology(t)), Requirement(o, 0, n, 4)) for t, o, n in ASKED]
    assert {each.algorithm.startswith("synthesized-") for each in chosen} == {True, False}


def test_auto_serves_where_no_schedule_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site.first(build_topology(RAILS))
    for wanted in (Requirement("gather", 0, 2**20, 4), Requirement("all_gather", 0, 0, 4)):
        assert faster_algorithm(site, wanted) == fastest(site, wanted).served

    def refused(*_: object) -> None:
        raise InputError("synthesize: too many ranks")

    wanted = Requirement("all_gather", 0, 2**20, 4)
    assert faster_algorithm(site, wanted) != fastest(site, wanted).served
    monkeypatch.setattr(synthesis_choice, "made_algorithm", refused)
    assert faster_algorithm(site, wanted) == fastest(site, wanted).served


def asked_of(word: str, request: Request, topology: Topology) -> AlgorithmOnDims:
    """Return the algorithm that serves a request by a word of `--algorithm`."""
    return choice_on(topology, (word,), "float32").algorithm_for(request)


def test_auto_alone_does_not_depend_on_schedules_that_were_made() -> None:
    topology, request = build_topology(RAILS), Request("all_gather", tuple(range(8)), 0, 2**20)
    before = asked_of("auto", request, topology)
    assert asked_of(BOTH, request, topology).algorithm.startswith("synthesized-")
    assert asked_of("auto", request, topology) == before
    assert not before.algorithm.startswith("synthesized-")


def test_who_chooses_is_told_for_each_request() -> None:
    choice = choice_on(build_topology(RAILS), ("auto", f"dp.all_reduce={BOTH}", "tp.all_reduce=synthesized"), "float32")
    of_dp, of_tp, other = (Request("all_reduce", (0, 1), elements=64, axis=axis) for axis in ("dp", "tp", "pp"))

    def told(name: str) -> list[bool]:
        return [is_automatic(choice.chooser, request, name) for request in (of_dp, of_tp, other)]

    assert (told("auto"), told("synthesized"), told(BOTH)) == ([True, False, True], [True, True, False], [True, False, False])
    assert [library_words(choice.chooser, request) for request in (of_dp, of_tp, other)] == [None] * 3
    assert is_automatic(choice.chooser, name=BOTH)
    assert not is_automatic(choice_on(build_topology(RAILS), ("auto", "all_reduce=synthesized"), "float32").chooser, name=BOTH)


def test_a_search_tries_made_schedules_only_for_requests_that_may_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = build_topology(RAILS)
    choice = choice_on(topology, ("auto", f"dp.all_reduce={BOTH}", "tp.all_reduce=synthesized"), "float32")
    choose = made_where_faster(choice.chooser)
    assert choose is not None
    small = Request("all_reduce", (0, 1), elements=2**6, axis="dp")
    assert choose(small) == asked_of("synthesized", small, topology)
    assert choose(small) != asked_of(BOTH, small, topology)  # the faster one
    assert choose(small._replace(axis="tp")) is choose(small._replace(axis="pp")) is None
    assert made_where_faster(choice_on(topology, ("auto", "all_reduce=synthesized"), "float32").chooser) is None
    turning: Any = replace(topology, name="turning")
    monkeypatch.setattr("emu.study.synthesize.check_circuits", lambda _: (_ for _ in ()).throw(InputError("they turn")))
    choose = made_where_faster(choice_on(turning, (BOTH,), "float32").chooser)
    assert choose is not None
    assert choose(small) is None
