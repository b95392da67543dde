"""A model that knows nothing meets no row of UB-Mesh's figures of shares and gains; its stubs stand where Emu computes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.nullmodel import fabrics_alike, mean_of_figure, meets, no_effect, stubs
from emu.study.planning.search.result_cache import ResultCache
from launch.papers import networks
from launch.papers.catalogue import PAPERS
from launch.papers.railx import times
from launch.papers.targets import Answer, number
from launch.papers.ub_mesh.setting import CLOS, RACKS

FIGURES = ("ub-f17", "ub-7pct", "ub-f19", "ub-f20")


class RacksAt:
    """Steps that reach the same share of the Clos's performance on every rack."""

    def __init__(self, percent):
        self.percent = percent

    def of(self, model, seq, fabric):
        return SimpleNamespace(step_time_s=1.0 if fabric.word == RACKS[CLOS] else 100 / self.percent)


def rows():
    paper = PAPERS["ub-mesh"](ResultCache(None))
    return paper, [target for target in paper.targets if target.id.startswith(FIGURES) and paper.is_worked_out(target)]


@pytest.mark.parametrize("stub", [mean_of_figure, no_effect])
def test_no_constant_meets_a_row_of_figures_17_19_and_20(stub):
    paper, found = rows()
    assert len(found) > 14
    assert [target.id for target in found if meets(stub, paper, target)] == []


@pytest.mark.parametrize("percent", [95.0, 96.15, 100.0])
def test_racks_that_are_alike_meet_no_row_of_figures_17_19_and_20(percent):
    paper, found = rows()
    alike = replace(paper, steps_of=lambda _: RacksAt(percent))
    assert [target.id for target in found if meets(lambda of, target: of.answer(target), alike, target)] == []


def test_no_constant_meets_a_row_of_any_paper_that_is_not_arithmetic():
    papers = [make(ResultCache(None)) for make in PAPERS.values()]
    every = [(paper, target) for paper in papers for target in paper.targets]
    found = [target.id for paper, target in every if any(meets(stub, paper, target) for stub in (mean_of_figure, no_effect))]
    assert found == []


def test_what_a_paper_prints_meets_the_rows_that_print_numbers():
    """Rows can be met: a model that gives every printed number meets what constants do not."""
    paper, found = rows()
    printed = [target for target in found if number(target.value) is not None]
    assert len(printed) > 10
    assert [each.id for each in printed if not meets(lambda _, row: Answer(number(row.value)), paper, each)] == []


def test_stubs_stand_wherever_a_function_is_imported_and_only_inside_the_context():
    before = times.collective_s
    with stubs({"networks.collective_s": 7.0}):
        assert times.collective_s("any", "all_reduce") == networks.collective_s() == 7.0
    assert times.collective_s is networks.collective_s is before


def test_a_row_that_asks_no_stub_has_no_answer_and_one_that_does_answers_by_it():
    paper = PAPERS["railx"](ResultCache(None))
    rings, grids = (next(each for each in paper.targets if each.id == row) for row in ("rx-avail-s2", "rx-eq11"))
    with stubs():
        assert fabrics_alike(paper, grids) == Answer(None)
        assert fabrics_alike(paper, rings).holds is False
