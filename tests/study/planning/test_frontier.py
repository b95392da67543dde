"""The frontier of a search gives its entries in the order of their bounds, whatever came and went before."""

import random
from collections import Counter

from emu.model.plan.plan_text import parse_plan
from emu.study.planning.plan_request import Candidate
from emu.study.planning.search import frontier
from emu.study.planning.search.frontier import OWN_PASSES, PLACED, READY, Frontier

PLANS = [parse_plan(words, global_batch=8, seq=64) for words in ("tp=8", "dp=8", "tp=2,dp=4", "cp=8", "pp=8,microbatch=1")]


def test_entries_come_in_the_order_of_their_bounds():
    draw, own, expected = random.Random(3), Frontier(), []
    for _ in range(2000):
        if draw.random() < 0.6:
            own.add(draw.randrange(50) / 10, draw.choice((READY, PLACED, OWN_PASSES)), Candidate(0, draw.choice(PLANS), ()))
            expected = sorted(own.entries)
        elif expected:
            assert own.least() == expected[0]
            split = expected.pop(0).split if draw.random() < 0.5 else draw.choice(expected).split
            taken = own.pop(split)
            assert taken.split == split
            expected = sorted(own.entries)
        assert own.has(2.5) == (bool(expected) and expected[0].bound_s <= 2.5)
    assert len(expected) > 100


def test_entries_near_the_least_bound_are_looked_at_together_and_one_that_is_ready_alone(monkeypatch):
    own = Frontier()
    for bound_s, known, plan in ((1.0, OWN_PASSES, 0), (1.004, PLACED, 1), (1.002, READY, 2), (1.01, OWN_PASSES, 3)):
        own.add(bound_s, known, Candidate(0, PLANS[plan], ()))
    assert [entry.bound_s for entry in own.take_batch(9.0)] == [1.0, 1.004]
    assert [entry.bound_s for entry in own.take_batch(9.0)] == [1.002]
    assert own.take_batch(1.0) == []
    assert [entry.bound_s for entry in own.take_batch(9.0)] == [1.01]
    assert own.least() is None
    monkeypatch.setattr(frontier, "_TOGETHER", 1)
    own.add(1.0, OWN_PASSES, Candidate(0, PLANS[0], ()))
    own.add(1.0, OWN_PASSES, Candidate(0, PLANS[0], ()))
    assert len(own.take_batch(9.0)) == 1


def test_the_most_promising_split_has_the_least_bound_unless_its_plans_were_timed_or_take_many_turns():
    """Each plan that was timed, and each doubling of the turns, lets the bound count for 1 % more."""
    own, words = Frontier(), ("tp=2,dp=4", "dp=4,pp=2,microbatch=1", "dp=8")  # one turn, 4 of 2 places, one
    for bound_s, plan in zip((1.0, 1.015, 5.0), words, strict=True):
        own.add(bound_s, OWN_PASSES, Candidate(0, parse_plan(plan, global_batch=8, seq=64), ()))
    first, second, _ = (entry.split for entry in sorted(own.entries))
    assert own.promising(4.0, Counter()) == first
    assert own.promising(4.0, Counter({first: 3})) == first
    assert own.promising(4.0, Counter({first: 4})) == second
    assert own.promising(1.0, Counter({first: 9})) == first
    assert own.promising(0.5, Counter()) is None


def test_entries_are_near_the_first_of_those_that_are_looked_at_and_not_near_one_another():
    """Within half a per cent of the least bound, though each is within that of the one before it."""
    own = Frontier()
    for bound_s, plan in ((1.0, 0), (1.004, 1), (1.0051, 2), (1.008, 3)):
        own.add(bound_s, OWN_PASSES, Candidate(0, PLANS[plan], ()))
    assert [entry.bound_s for entry in own.take_batch(9.0)] == [1.0, 1.004]
    assert [entry.bound_s for entry in own.take_batch(9.0)] == [1.0051, 1.008]
