"""The search over points whose times are drawn: the answer is that of all times, and no point is timed without need."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.cost.price_book import Price
from emu.study.design.design import _all_that_count
from emu.study.design.design_search import DesignSearch, _survey_jobs
from emu.study.design.link_rates import LinkRates
from emu.study.design.point import DesignPoint
from emu.study.design.price_list import PricedThing
from emu.study.design.sensitivity import needed_changes, price_ranges, ranked, winners_at
from emu.study.design.survey import NEARER, NEAREST, TIMED, ReachedPoint, Surveyed, SurveyJob
from emu.study.job_pool import OpenPool, known_result
from emu.study.planning.search.search_state import quiet

THINGS = (
    PricedThing("switch", Price(50.0, 4.0), Price(90.0, 4.0)),
    PricedThing("cable", Price(3.0, 1.0), Price(5.0, 1.0)),
    PricedThing("NPU", Price(200.0, 9.0), Price(200.0, 9.0)),
)
BOUNDS = {NEARER: 0.9, NEAREST: 0.97}


class Drawn:
    """A space of points with drawn amounts, times and availability, whose jobs are done at once."""

    def __init__(self, seed: int, n: int = 120, **limits: float) -> None:
        numbers = Random(seed)
        self.steps = [float(numbers.randint(50, 90)) for _ in range(n)]
        self.rates: list[LinkRates | None] = [None] * n
        self.amounts = [[float(numbers.randint(0, 6)) for _ in THINGS[:2]] + [8.0] for _ in range(n)]
        self.shares = [numbers.choice((0.9, 0.95, 1.0)) for _ in range(n)]
        self.asked: list[tuple[int, int]] = []
        names = [f"net{number % 5}:k={number}" for number in range(n)]
        points = tuple(DesignPoint(name, "h100", 8, (("topology", name[:4]), ("k", name[7:]))) for name in names)
        plans = SimpleNamespace(global_batch=10, seq=100)
        limits = {"budget_dollars": None, "power_watts": None, **limits}
        request = SimpleNamespace(plans=plans, devices={"h100": None}, availability=lambda _: 1.0, **limits)
        self.search = DesignSearch(
            SimpleNamespace(points=points, request=request, recall=lambda _: None), OpenPool(self.submit, 2), quiet
        )

    def submit(self, job):
        if isinstance(job, SurveyJob):
            return known_result([self.surveyed(number) for number in job.points])
        self.asked.append((job.point, job.to))
        if job.to == TIMED:
            row = SimpleNamespace(row=SimpleNamespace(step_time_s=self.steps[job.point]), steps=3)
            return known_result(ReachedPoint(self.steps[job.point], row))
        return known_result(ReachedPoint(BOUNDS[job.to] * self.steps[job.point]))

    def surveyed(self, number: int) -> Surveyed:
        amounts = {thing: amount for thing, amount in zip(THINGS, self.amounts[number], strict=True) if amount}
        return Surveyed("", 0.7 * self.steps[number], amounts, self.shares[number], self.rates[number])

    def dollars(self, number: int, prices=(70.0, 4.0, 200.0)) -> float:
        return sum(amount * price for amount, price in zip(self.amounts[number], prices, strict=True))

    def values(self, number: int) -> tuple[float, ...]:
        watts = sum(amount * watts for amount, watts in zip(self.amounts[number], (4.0, 1.0, 9.0), strict=True))
        return 1000 / self.steps[number], -self.dollars(number), -watts, self.shares[number]


class DrawnRates(Drawn):
    """A space of four structures, in each of which the step depends on the rates of two kinds of links alone."""

    def __init__(self, seed: int, n: int = 120) -> None:
        super().__init__(seed, n)
        numbers = Random(seed)
        for number in range(n):
            rates = tuple(float(numbers.randint(1, 5)) for _ in range(2))
            self.rates[number] = LinkRates(f"net{number % 4}", rates)
            self.steps[number] = 50.0 + 5 * (number % 4) + sum(20.0 / rate for rate in rates)
            if number % 3:  # rates that cost nothing
                self.amounts[number], self.shares[number] = [2.0, float(number % 4), 8.0], 1.0


def beats(one, other) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def settled(seed: int, kind: type[Drawn] = Drawn, **limits: float) -> Drawn:
    drawn = kind(seed, **limits)
    drawn.search.survey()
    drawn.search.settle(lambda: _all_that_count(drawn.search))
    return drawn


@pytest.mark.parametrize("seed", range(8))
def test_the_front_is_that_of_all_times(seed):
    drawn = settled(seed)
    every = [drawn.values(number) for number in range(120)]
    front = [number for number, own in enumerate(every) if not any(beats(other, own) for other in every)]
    assert drawn.search.front().tolist() == front
    best = max(range(120), key=lambda number: every[number][0] / drawn.dollars(number))
    assert ranked(drawn.search)[0] == best


@pytest.mark.parametrize("seed", range(8))
def test_points_with_slower_links_need_no_time_and_the_front_has_the_same_values(seed):
    drawn = settled(seed, DrawnRates)
    every = [drawn.values(number) for number in range(120)]
    front = {own for own in every if not any(beats(other, own) for other in every)}
    assert {every[number] for number in drawn.search.front().tolist()} == front
    assert len(drawn.search.no_better) > 20
    assert not {number for number, _ in drawn.asked} & {*drawn.search.no_better.tolist()}


def test_a_time_bounds_the_points_whose_links_are_nowhere_faster():
    drawn = settled(1, DrawnRates)
    still = [number for number in drawn.search.alive.tolist() if number not in drawn.search.best]
    nearest = {number for number, to in drawn.asked if to == NEAREST}
    raised = [number for number in still if drawn.search.least_s[number] > BOUNDS[NEAREST] * drawn.steps[number] + 1e-9]
    assert raised
    assert {*raised} - nearest
    for number in still:
        assert drawn.search.least_s[number] <= drawn.steps[number]


@pytest.mark.parametrize("seed", range(4))
def test_no_point_of_the_front_alone_is_timed_without_need(seed):
    drawn = Drawn(seed)
    drawn.search.survey()
    front = drawn.search.settle(drawn.search.front)
    timed = [number for number, to in drawn.asked if to == TIMED]
    assert len(timed) == len(set(timed)) < 120
    known = [drawn.values(number) for number in front]
    for number in timed:  # with its last bound it could have been on the front
        tokens, *rest = drawn.values(number)
        assert not any(beats(other, (tokens / BOUNDS[NEAREST], *rest)) for other in known)


@pytest.mark.parametrize("seed", range(4))
def test_at_each_price_the_winner_is_that_of_all_times(seed):
    drawn = settled(seed)
    middle = [70.0, 4.0, 200.0]
    for number, thing in enumerate(THINGS):
        at = drawn.search.prices.things.index(thing)
        spans = winners_at(drawn.search, at)
        ends = (thing.low.dollars, thing.high.dollars) if number < 2 else (100.0, 400.0)
        assert (spans[0].low, spans[-1].high) == ends
        for span in spans:
            prices = [*middle[:number], (span.low + span.high) / 2, *middle[number + 1 :]]
            cost = {each: drawn.dollars(each, prices) * drawn.steps[each] for each in range(120)}
            assert cost[span.point] == pytest.approx(min(cost.values()))
            assert span.point in drawn.search.best
    assert [each.thing for each in price_ranges(drawn.search)] == [each.name for each in drawn.search.prices.things]


@pytest.mark.parametrize("seed", range(8))
def test_a_change_that_is_needed_makes_a_point_as_good_as_the_first(seed):
    drawn, middle = settled(seed), [70.0, 4.0, 200.0]
    first, *others = ranked(drawn.search)[:6].tolist()
    told = [(other, each) for other in others for each in needed_changes(drawn.search, first, other, "second")]
    for other, change in told:
        prices, steps, saved = [*middle], {n: drawn.search.least_s[n] for n in (first, other)}, 1.0
        if change.what == "its step (s)":
            steps[other] = change.needed
        elif change.what == "its dollars":
            saved = change.factor
        else:
            number = [f"the price of {thing.name} ($)" for thing in THINGS].index(change.what)
            assert change.now == middle[number]
            prices[number] = change.needed
        value = 1 / (steps[other] * drawn.dollars(other, prices) * saved)
        assert value == pytest.approx(1 / (steps[first] * drawn.dollars(first, prices)))
    assert any("price" in change.what for _, change in told)


def test_points_beyond_the_budget_and_the_power_are_left_out():
    least = min(Drawn(1).dollars(number) for number in range(120))
    drawn = settled(1, budget_dollars=least + 150, power_watts=90.0)
    assert {*drawn.search.front().tolist()} <= {n for n in range(120) if drawn.dollars(n) <= least + 150}
    assert all(-drawn.values(number)[2] <= 90 for number in drawn.search.front().tolist())
    assert len(drawn.search.too_dear) == sum(drawn.dollars(n) > least + 150 or -drawn.values(n)[2] > 90 for n in range(120))


def test_a_budget_below_the_cheapest_point_names_it():
    drawn = Drawn(1, budget_dollars=10.0)
    cheapest = min(range(120), key=drawn.dollars)
    with pytest.raises(
        InputError, match=r"--budget must be 1,\d+ \$ or more, as the cheapest point, net\d:k=\d+, takes, got 10"
    ):
        drawn.search.survey()
    assert drawn.dollars(cheapest) > 10


def test_a_bound_never_gets_looser():
    drawn = Drawn(2)
    drawn.search.survey()
    before = drawn.search.least_s.copy()
    drawn.search._store(0, NEARER, ReachedPoint(before[0] / 2))
    assert drawn.search.least_s[0] == before[0]
    assert np.array_equal(drawn.search.least_s, before)


def test_a_point_without_a_step_is_told_and_left_out():
    drawn = Drawn(3)
    drawn.search.survey()
    drawn.search._store(5, TIMED, ReachedPoint(1.0, refused="no way"))
    assert drawn.search.refused == {5: "no way"}
    assert 5 not in drawn.search.alive


def two(**limits: float) -> Drawn:
    """A point of 1,624 $ and 78 W with the shorter step, and one of 1,670 $ and 76 W."""
    drawn = Drawn(1, 2, **limits)
    drawn.amounts, drawn.steps, drawn.shares = [[0.0, 6.0, 8.0], [1.0, 0.0, 8.0]], [50.0, 60.0], [1.0, 1.0]
    return drawn


@pytest.mark.parametrize(
    ("limits", "too_dear"),
    [
        ({"budget_dollars": 1624.0}, [1]),
        ({"budget_dollars": 1669.0}, [1]),
        ({"budget_dollars": 1670.0}, []),
        ({"power_watts": 76.0}, [0]),
        ({"power_watts": 78.0, "budget_dollars": 1670.0}, []),
    ],
)
def test_a_point_that_takes_all_of_a_limit_is_within_it(limits, too_dear):
    drawn = two(**limits)
    drawn.search.survey()
    assert drawn.search.too_dear.tolist() == too_dear
    assert drawn.search.alive.tolist() == [number for number in (0, 1) if number not in too_dear]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"budget_dollars": 1623.0},
            r"--budget must be 1,624 \$ or more, as the cheapest point, net0:k=0, takes, got 1,623",
        ),
        ({"power_watts": 75.0}, "--power must be 76 W or more, as the point of the least power, net1:k=1, takes, got 75 W"),
        ({"budget_dollars": 1624.0, "power_watts": 76.0}, "no point is within both --budget and --power"),
    ],
)
def test_limits_that_no_point_keeps_are_refused(limits, said):
    with pytest.raises(InputError, match=f"design: {said}"):
        two(**limits).search.survey()


def test_a_point_that_costs_nothing_is_refused_and_named():
    drawn = two()
    drawn.amounts[1] = [0.0, 0.0, 0.0]
    with pytest.raises(InputError, match=r"prices must be above 0 \$ for each point, got 0 \$ for net1:k=1; give --npu"):
        drawn.search.survey()


def test_where_no_point_has_a_step_the_first_reason_is_told(monkeypatch):
    drawn = two()
    monkeypatch.setattr(drawn, "surveyed", lambda number: Surveyed(f"no place {number}", np.inf, {}, None))
    with pytest.raises(InputError, match="design: no point has a step; the first: no place 0"):
        drawn.search.survey()


@pytest.mark.parametrize("count", [1, 2, 64, 65, 128, 129])
def test_each_point_is_surveyed_once_beside_its_neighbours_of_one_device_and_size(count):
    devices, sizes = ["h100"] * count + ["b200"] * 3 + ["b200"] * 65, [8] * count + [8] * 3 + [16] * 65
    points = [DesignPoint("net", device, npus, ()) for device, npus in zip(devices, sizes, strict=True)]
    jobs = [job.points for job in _survey_jobs(points)]
    assert [number for job in jobs for number in job] == list(range(count + 68))
    assert all(len({(devices[number], sizes[number]) for number in job}) == 1 for job in jobs)
    assert max(map(len, jobs)) <= 64


def test_a_point_that_is_timed_where_a_bound_was_asked_for_is_not_asked_for_again():
    """A plan without a bound is timed at once."""
    drawn, submit = two(), Drawn.submit

    def timed_at_once(job):
        return submit(drawn, job if isinstance(job, SurveyJob) else job._replace(to=TIMED))

    drawn.search.pool = OpenPool(timed_at_once, 2)
    drawn.search.survey()
    assert drawn.search.settle(drawn.search.front).tolist() == [0, 1]
    assert sorted(drawn.asked) == [(0, TIMED), (1, TIMED)]
