"""The table of a design that has ended: its rows, their reasons, and its counts, for points worked out by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.study.cost.price_book import Price
from emu.study.design.design import _table, _values
from emu.study.design.design_search import DesignSearch
from emu.study.design.point import DesignPoint
from emu.study.design.price_list import PricedThing, PriceList
from emu.study.job_pool import OpenPool
from emu.study.planning.find import BestPlan
from emu.study.planning.search.search_state import quiet

# Points: settings, step (s), timed or only bounded, dollars as (lids, cables), availability.
POINTS = [
    ({"topology": "torus", "dims": "4x4", "planes": "1"}, 2.0, True, (10, 0), 0.9),
    ({"topology": "torus", "dims": "4x4", "planes": "2"}, 1.0, True, (30, 0), 0.9),
    ({"topology": "torus", "dims": "2x8", "planes": "2"}, 1.0, True, (30, 5), 0.8),
    ({"topology": "clos", "dims": "4x4", "planes": "4"}, 1.6, True, (16, 1), 0.95),
    ({"topology": "torus", "dims": "2x8", "planes": "4"}, 4.0, False, (40, 7), 0.5),
    ({"topology": "clos", "dims": "2x8", "planes": "4"}, np.inf, False, (1, 0), 0.5),
    ({"topology": "clos", "dims": "4x4", "planes": "8"}, 1.6, True, (20, 1), 0.95),
]
LID = PricedThing("lid", Price(8.0, 3.0), Price(12.0, 5.0))  # 10 $ and 4 W halfway
CABLE = PricedThing("cable", Price(2.0, 1.0), Price(2.0, 1.0))


def ended(has_availability: bool = True, planes: str = "4") -> DesignSearch:
    """A search that has ended: 300 sequences of 10 tokens a step, 8 NPUs at each point; `planes` are those of point 3."""
    settings = [{**row[0], **({"planes": planes} if i == 3 else {})} for i, row in enumerate(POINTS)]
    points = tuple(DesignPoint(f"net{i}", "h100", 8, tuple(each.items())) for i, each in enumerate(settings))
    model, software = SimpleNamespace(name="my model"), SimpleNamespace(name="megatron")
    plans = SimpleNamespace(
        global_batch=300, seq=10, model=model, stack=SimpleNamespace(software=software), given="pp=1", npus=4
    )
    request: Any = SimpleNamespace(plans=plans, devices={"h100": None}, book=SimpleNamespace(name="offers"), availability=None)
    search = DesignSearch(SimpleNamespace(points=points, request=request), OpenPool(lambda _: None, 1), quiet)
    search.least_s = np.array([row[1] for row in POINTS])
    search.prices = PriceList((LID, CABLE), np.array([row[3] for row in POINTS], float))
    search.dollars = search.prices.dollars("middle")
    columns = [-search.dollars, -search.prices.watts(), np.array([row[4] for row in POINTS])]
    search.measures = np.stack(columns if has_availability else columns[:2], axis=1)
    search.too_dear, search.no_better = np.array([7, 8, 9]), np.array([10, 11])
    search.refused = {20: "no room", 21: "no memory", 22: "no memory", 5: "no plan"}
    search.best = {i: BestPlan(plan_row(i, row[1]), 100 * (i + 1)) for i, row in enumerate(POINTS) if row[2]}
    return search


def plan_row(number: int, step_s: float) -> Any:
    words = {"topology": f"net{number}", "plan": f"plan {number}", "axes": f"axes {number}", "mfu": number / 8}
    return SimpleNamespace(**words, step_time_s=step_s, tokens_per_s=3000 / step_s)


def test_the_front_stands_in_the_order_of_its_money_and_each_row_beats_what_it_beats() -> None:
    """Tokens a dollar: 3000 / (2 * 100), 3000 / 300, 3000 / 310, 1875 / 162, 750 / 414, 1875 / 202."""
    table = _table(ended(), 1.25)
    assert [(row.topology, row.beats, row.beaten_by) for row in table.rows] == [
        ("net0", 1, None),
        ("net3", 2, None),  # net6, which costs more, and net4
        ("net1", 2, None),  # net2 and net4, which is bounded alone
    ]
    assert [(row.topology, row.beats, row.beaten_by) for row in table.beaten] == [("net2", 0, 3), ("net6", 0, 2)]
    assert [row.tokens_per_s_dollar for row in table.rows] == pytest.approx([1500 / 100, 1875 / 162, 3000 / 300])
    assert table.wall_s == 1.25
    assert table.fastest.topology == "net1"


def test_a_row_has_the_figures_of_its_point_and_of_its_plan() -> None:
    table = _table(ended(), 0.0)
    row = table.rows[1]
    assert (row.topology, row.device, row.npus, row.plan, row.axes, row.mfu) == ("net3", "h100", 8, "plan 3", "axes 3", 3 / 8)
    assert (row.low_dollars, row.dollars, row.high_dollars) == (16 * 8 + 2, 162, 16 * 12 + 2)
    assert (row.watts, row.availability) == (16 * 4 + 1, 0.95)
    assert (row.tokens_per_s, row.step_time_s, dict(row.settings)) == (1875, 1.6, POINTS[3][0])
    assert row.name == "8 h100 on net3"
    assert [each.availability for each in _table(ended(has_availability=False), 0.0).rows] == [None] * 3


def test_a_row_has_the_reason_beside_the_nearest_row_above_and_a_beaten_one_beside_what_beats_it() -> None:
    table = _table(ended(), 0.0)
    assert [row.why for row in (*table.rows, *table.beaten)] == [
        "the most tokens/s a dollar",
        "beside 1, clos: 25 % faster, 62 % dearer, 62.5 % more power, 5.56 % more available",
        "beside 1, twice the planes: 100 % faster, 200 % dearer, 200 % more power",
        "beside 3, dims=2x8 instead of 4x4: 3.33 % dearer, 4.17 % more power, 11.1 % less available",
        "beside 2, twice the planes: 24.7 % dearer, 24.6 % more power",
    ]


def test_of_rows_above_that_are_equally_near_the_last_is_compared() -> None:
    """Point 1 differs from point 0 in its planes, and from point 3 in its topology; point 2 from point 1 in its size alone."""
    search = ended(planes="2")
    search.measures[:, 2] = [0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.0]
    rows = _table(search, 0.0).rows
    assert [row.topology for row in rows] == ["net0", "net3", "net1", "net2"]
    assert [row.why.partition(",")[0] for row in rows[1:]] == ["beside 1", "beside 2", "beside 3"]
    assert rows[2].why.startswith("beside 2, torus: 60 % faster, 85.2 % dearer")
    assert rows[3].why.startswith("beside 3, dims=2x8 instead of 4x4: 3.33 % dearer")


def test_points_and_steps_are_counted_and_reasons_stand_by_how_often_they_come() -> None:
    table = _table(ended(), 0.0)
    assert (table.points, table.too_dear, table.no_better, table.refused) == (7, 3, 2, 4)
    assert (table.timed, table.bounded, table.steps) == (5, 1, 100 + 200 + 300 + 400 + 700)
    assert [*table.refused_why.items()] == [("no memory", 2), ("no room", 1), ("no plan", 1)]
    assert (table.model, table.software, table.given, table.prices) == ("my model", "megatron", "pp=1", "offers")
    assert (table.global_batch, table.seq) == (300, 10)
    search = ended()
    search.request.plans.model = "llama-tiny"
    assert _table(search, 0.0).model == "llama-tiny"


def test_what_other_points_would_need_is_told_of_the_second_and_of_the_best_of_each_other_family_beside_the_first() -> None:
    table = _table(ended(), 0.0)
    assert {(each.point, each.role) for each in table.changes} == {("net3", "second")}
    step, dollars, *_ = table.changes
    value = (1875 / 162) / (1500 / 100)
    assert (step.what, step.now, step.needed) == ("its step (s)", 1.6, pytest.approx(1.6 * value))
    assert (dollars.what, dollars.now, dollars.needed) == ("its dollars", 162, pytest.approx(162 * value))
    assert [each.thing for each in table.ranges] == ["lid", "cable"]


def test_measures_are_larger_where_better() -> None:
    assert _values(ended(), np.array([3, 4])).tolist() == [[1875, -162, -65, 0.95], [750, -414, -167, 0.5]]
