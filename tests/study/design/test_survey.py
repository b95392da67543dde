"""The jobs of a design, with bounds and plans that are given: which points get which bound, and what is kept of each."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import OwnershipTerms
from emu.study.cost.price_book import PartPrice, Price, PriceBook, Section
from emu.study.design import survey
from emu.study.design.link_rates import link_rates
from emu.study.design.point import DesignPoint
from emu.study.design.survey import NEARER, NEAREST, TIMED, DesignWorker, ReachedPoint, ReachJob, SurveyJob
from emu.study.planning.find import BestPlan
from emu.study.planning.search.frontier import PLACED, READY
from emu.topology.catalogue import build_topology
from tests.study.planning.test_row import row as plan_row

STAR = "switch:n={},bandwidth=50GB/s,latency=500ns"
BUILT = replace(build_topology(STAR.format(8)), name="my own")
SIX = Price(6.0, 2.0)
BOOK = PriceBook("mine", "", {"any": Section({"switch": PartPrice(SIX, SIX)}, ("*",), (), {})})
POINTS = tuple(
    DesignPoint(topology, device, 4, (("topology", "switch"), ("n", str(i))))
    for i, (topology, device) in enumerate(
        [(STAR.format(4), "h100"), (STAR.format(2), "h100"), (STAR.format(8), "h100"), (BUILT, "h800"), ("nothing", "h100")]
    )
)


class Kept(dict[str, Any]):
    """A cache in memory."""

    def read(self, name: str) -> Any:
        return self.get(name)

    def write(self, name: str, value: Any) -> None:
        self[name] = value


def worker(availability: Any = None) -> DesignWorker:
    terms = {"h100": OwnershipTerms(Price(10.0, 0.0), 0.0, 0.0), "h800": OwnershipTerms(Price(7.0, 0.0), 0.0, 0.0)}
    devices = {name: SimpleNamespace(device=f"a {name}", terms=each) for name, each in terms.items()}
    plans = SimpleNamespace(model="a model")
    request: Any = SimpleNamespace(book=BOOK, devices=devices, availability=availability, plans_at=lambda _: plans)
    return DesignWorker(request, POINTS, Kept())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "search_name", lambda _, model, device, machines: f"{model}, {device}, {machines[0].name}")
    monkeypatch.setattr(survey, "find_model", lambda name: name)
    monkeypatch.setattr(survey, "prepare_search", lambda *asked: asked[1:3])


def test_points_that_can_be_built_get_their_bounds_in_order_and_the_others_their_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "least_anywhere_s", lambda asked: [each.n_npus / 2 for each in asked[0]])
    found = worker()(SurveyJob((0, 1, 2, 4)))
    assert isinstance(found, list)
    assert [each.least_s for each in found] == [2.0, inf, 4.0, inf]
    assert [bool(each.refused) for each in found] == [False, True, False, True]
    assert "NPUs must be 4 or more, got 2" in found[1].refused
    amounts = [{thing.name: amount for thing, amount in each.amounts.items()} for each in found]
    assert amounts == [{"switch": 1.0, "NPU h100": 4.0}, {}, {"switch": 0.5, "NPU h100": 4.0}, {}]
    assert found[2].rates == link_rates(build_topology(STAR.format(8)), POINTS[2].settings)
    assert [each.rates is None for each in found] == [False, True, False, True]
    assert {each.availability for each in found} == {None}


def test_a_topology_whose_ranks_have_less_room_than_it_has_npus_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of 16 only 16 of its 24 NPUs take ranks."""
    narrow = "infinitehbd:dims=1x3x2x4,k=2,tp=16"
    points = [DesignPoint(name, "h100", 24, ()) for name in ("nvl:72", narrow)]
    monkeypatch.setattr(survey, "least_anywhere_s", lambda asked: [each.n_npus / 2 for each in asked[0]])
    found = replace(worker(), points=tuple(points))(SurveyJob((0, 1)))
    assert [each.least_s for each in found] == [36.0, inf]  # type: ignore[union-attr]
    assert [each.refused[:39] for each in found] == ["", f"placement: 24 ranks do not fit {narrow}"[:39]]  # type: ignore[union-attr]


def test_a_topology_of_ones_own_is_compared_with_no_other_and_has_its_availability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "least_anywhere_s", lambda asked: [9.0 if asked[1] == "a h800" else 1.0])
    (found,) = worker(lambda topology: topology.n_npus / 10)(SurveyJob((3,)))  # type: ignore[misc]
    assert (found.refused, found.least_s, found.availability, found.rates) == ("", 9.0, 0.8, None)
    assert {thing.name: amount for thing, amount in found.amounts.items()}["NPU h800"] == 4


def test_where_no_plan_has_so_many_npus_each_point_is_refused_and_keeps_a_reason_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: Any) -> Any:
        raise InputError("no plan")

    monkeypatch.setattr(survey, "least_anywhere_s", refuse)
    found = worker()(SurveyJob((0, 1, 2)))
    assert isinstance(found, list)
    assert [each.refused == "no plan" for each in found] == [True, False, True]
    assert "NPUs must be 4 or more" in found[1].refused
    assert [each.least_s for each in worker()(SurveyJob((1, 4)))] == [inf, inf]  # type: ignore[union-attr]


@pytest.mark.parametrize(("bounds", "asked"), [([inf, inf], 1), ([inf, 3.0], 0), ([3.0, inf], 0)])
def test_where_no_plan_fits_the_memory_anywhere_the_search_says_why(
    bounds: list[float], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(survey, "least_anywhere_s", lambda _: bounds)
    monkeypatch.setattr(
        survey, "find_best_plan", lambda _, topology, device, __: searched.append(f"{device} {topology.n_npus}")
    )
    found = worker()(SurveyJob((0, 2)))
    assert [each.least_s for each in found] == bounds  # type: ignore[union-attr]
    assert searched == ["a h100 4"] * asked


@pytest.mark.parametrize(("to", "rung"), [(NEARER, PLACED), (NEAREST, READY)])
def test_a_bound_is_that_of_its_rung_and_is_kept_for_it_alone(to: int, rung: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "least_step_s", lambda *asked: 5.0 if asked[-1] == rung else 0.0)
    mine = worker()
    assert mine.recall(ReachJob(2, to)) is None
    assert mine(ReachJob(2, to)) == ReachedPoint(5.0)
    assert mine.recall(ReachJob(2, to)) == ReachedPoint(5.0)
    assert mine.recall(ReachJob(2, NEARER + NEAREST - to)) is None
    assert mine.recall(ReachJob(0, to)) is None


@pytest.mark.parametrize("to", [NEAREST, TIMED])
def test_a_point_to_be_timed_or_without_a_bound_has_its_best_plan_which_is_kept(
    to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = BestPlan(replace(plan_row("dp=4"), step_time_s=0.25), 17)
    monkeypatch.setattr(survey, "least_step_s", lambda *_: inf)
    monkeypatch.setattr(survey, "find_best_plan", lambda *_: best)
    mine = worker()
    assert mine(ReachJob(0, to)) == mine.recall(ReachJob(0, to)) == ReachedPoint(0.25, best)


def test_a_point_that_cannot_be_worked_out_has_its_reason_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise InputError("no memory")

    monkeypatch.setattr(survey, "find_best_plan", refuse)
    mine = worker()
    assert mine(ReachJob(0, TIMED)) == ReachedPoint(inf, None, "no memory")
    assert not mine.kept
