"""Rows of papers by several processes: those of one place by one, places side by side, results as by one process."""

import multiprocessing
import os

import pytest

from emu.study.job_pool import LocalPool
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.catalogue import PAPERS
from launch.papers.row_answers import RowRequest, answers
from launch.papers.targets import Answer

QUICK = (("ub-mesh", "1"), ("railx", "3"), ("hpn", "2"))


@pytest.fixture
def kept():
    found = ResultCache(None)
    yield found
    found.close()


def asked_of(kept, places):
    """The rows of places."""
    papers = {name: PAPERS[name](kept) for name, _ in places}
    return [
        RowRequest(name, place, papers[name].targets.index(row)) for name, place in places for row in papers[name].of(place)
    ]


def test_two_processes_say_what_one_says(kept):
    asked = asked_of(kept, QUICK)
    makers = {name: PAPERS[name] for name, _ in QUICK}
    assert len(asked) > 10
    both = [[*answers(makers, asked, ResultCache(None), LocalPool(n))] for n in (2, 1)]
    assert both[0] == both[1]


def test_what_several_processes_have_worked_out_is_kept(kept, tmp_path):
    asked = asked_of(kept, QUICK[:2])
    makers = {name: PAPERS[name] for name, _ in QUICK[:2]}
    found = [*answers(makers, asked, ResultCache(tmp_path), LocalPool(2))]
    mute = {name: lambda kept, make=make: Mute(make(kept)) for name, make in makers.items()}
    assert [*answers(mute, asked, ResultCache(tmp_path), LocalPool())] == found


def test_places_are_worked_out_side_by_side_and_rows_of_one_by_one_process(kept):
    asked = asked_of(kept, QUICK[:2])
    both = multiprocessing.get_context("fork").Barrier(2)
    makers = {name: lambda kept, make=PAPERS[name]: Met(make(kept), both) for name, _ in QUICK[:2]}
    by = {each.paper: set() for each in asked}
    for each, answer in zip(asked, answers(makers, asked, ResultCache(None), LocalPool(2)), strict=True):
        by[each.paper].add(answer.ours)
    assert [len(processes) for processes in by.values()] == [1, 1]
    assert len(set.union(*by.values()) | {str(os.getpid())}) == 3


class Mute:
    """Its rows are there, and have no answer."""

    def __init__(self, paper):
        self.targets = paper.targets
        self.answer = None


class Met:
    """Each row says by which process, once another process works out one of its own."""

    def __init__(self, paper, both):
        self.targets = paper.targets
        self.both = both
        self.waited = False

    def answer(self, _):
        if not self.waited:
            self.both.wait(60)
        self.waited = True
        return Answer(str(os.getpid()))
