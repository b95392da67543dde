"""The spans in which bodies share links or are left unevenly, of a few calls whose times are given."""

from types import SimpleNamespace

import numpy as np
import pytest

from emu.study.training.composed.stretch_choice import StretchChoice, _runs

# Request 0 is made twice; 0 and 1 share links.
REQUEST, BEGAN, ENDED = np.array([0, 1, 2, 0]), np.array([0, 8, 9, 30]), np.array([10, 14, 40, 35])


def choice(apart=(5, 3, 0)):
    asked = SimpleNamespace(request_of_call=REQUEST, call=np.arange(4), event=np.arange(4))
    crossed = np.array([[True, True, False]])
    return StretchChoice(asked, crossed, np.array(apart), np.array([6, 7, 8]), np.array([2, 2, 3, 2]))


def composed(*by_rank):
    return SimpleNamespace(by_rank=np.isin(np.arange(4), by_rank), spans=lambda _: (BEGAN, ENDED))


def of_runs(began, ended, body=None):
    own = np.arange(len(began))
    found = _runs(np.array(began), np.array(ended), np.ones(len(own), np.bool_) if body is None else np.array(body), own)
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def test_calls_that_follow_one_another_do_not_overlap_and_one_within_another_ends_nothing():
    assert of_runs([5, 0, 12, 20, 22], [12, 10, 20, 25, 24]) == [(0, 12), (20, 25)]
    assert of_runs([0, 1, 5], [10, 2, 8]) == [(0, 10)]
    assert of_runs([0, 10], [10, 20]) == of_runs([0, 5], [10, 5]) == of_runs([], []) == []


@pytest.mark.parametrize(("body", "spans"), [((0, 0), []), ((0, 1), [(0, 9)]), ((1, 0), [(0, 9)])])
def test_calls_overlap_where_one_of_them_is_a_body(body, spans):
    assert of_runs([0, 4], [6, 9], np.array(body, np.bool_)) == spans


@pytest.mark.parametrize(("but_fs", "calls"), [(0, [0, 1, 3]), (2.9, [0, 1, 3]), (3, [0, 3]), (8, [3]), (13, [])])
def test_bodies_that_are_left_most_unevenly_are_told_and_others_cost_no_more_than_may_be(but_fs, calls):
    found = choice().uneven(composed(), None, but_fs)
    assert sorted(found.start.tolist()) == BEGAN[calls].tolist()
    assert sorted(found.end.tolist()) == ENDED[calls].tolist()


def test_a_call_of_which_every_rank_has_its_own_tasks_is_not_left_unevenly():
    assert choice().uneven(composed(3), None).start.tolist() == [8, 0]


@pytest.mark.parametrize(("by_rank", "ticks"), [((), 14 + 13), ((0,), 14 + 8), ((0, 1), 5), ((3,), 14 + 8), ((0, 1, 3), 0)])
def test_what_is_unsure_is_the_time_of_shared_links_and_of_ranks_that_leave_apart(by_rank, ticks):
    """Calls 0 and 1 share links from 0 to 14, as long as one is a body; 5, 3 and 5 ticks ranks leave 0, 1 and 3 apart."""
    assert choice().unsure_fs(composed(*by_rank), None) == ticks


def test_tasks_are_the_messages_of_calls_and_the_ranks_of_events_that_are_laid():
    assert choice()._tasks(composed(0, 2).by_rank) == 6 + 8 + 2 + 3
    assert choice()._tasks(composed().by_rank) == 0
