"""The plans that a search has proved when it ends: after a fixed amount of work, after a signal, and started again."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from emu.model.plan.plan_text import spell
from emu.study.job_pool import LocalPool
from emu.study.planning.find import STARTED_AGAIN, InterruptedSearch
from emu.study.planning.plan_row import INTERRUPTED, OUT_OF_WORK, PROVED
from emu.study.planning.search import search, search_jobs
from emu.study.planning.search.ladder import BoundLadder
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search import Search, Work
from emu.study.planning.search.search_jobs import QUICK, StepJob
from emu.study.planning.search.search_state import SearchState
from launch.show.html.plan_page import _search_sentences, _table
from launch.show.text.estimate_table import PROOF, plans_report, proof_text
from tests.study.planning.spaces import H100, asked, enumerated, found, step_s, table

MANY = 10**6
SMALL = (replace(asked("llama-tiny", 2, 2, 64, by=("auto",), top=12), prove_all=False), "ub-mesh:board")
PYTORCH = (replace(asked("llama-tiny", 2, 1, 64, "pytorch", top=12), prove_all=False), "servers:nodes=2,gpus=2")


@pytest.fixture
def steps(monkeypatch):
    """The candidates whose steps have been timed."""
    timed, real = [], search_jobs.JobWorker.__call__

    def noting(own, job):
        timed.extend([job.candidate] if isinstance(job, StepJob) and job.effort == QUICK else [])
        return real(own, job)

    monkeypatch.setattr(search_jobs.JobWorker, "__call__", noting)
    return timed


@pytest.mark.parametrize(("request_", "line"), [SMALL, PYTORCH])
def test_what_may_come_before_a_row_is_below_every_plan_that_was_not_timed(request_, line, steps, monkeypatch):
    """Every candidate is timed by other code; one process and two say the same."""
    monkeypatch.setattr(search, "MOST_AFTER_FIRST", Work(1, MANY, MANY))
    planned = found(request_, line, kept=ResultCache(None))
    left_s = min(step_s(request_, each, line, composed=True) for each in enumerated(request_) if each not in steps)
    assert planned.ended == OUT_OF_WORK
    assert 0 <= len(steps) - planned.timed < request_.top, "only promising plans may be timed in vain"
    proved = [row.least_untimed_s is None for row in planned.rows]
    assert proved == sorted(proved, reverse=True)
    assert 1 <= sum(proved) < len(proved)
    assert all(row.step_time_s < left_s for row, is_proved in zip(planned.rows, proved, strict=True) if is_proved)
    assert {row.least_untimed_s for row in planned.rows} == {None, planned.least_s}
    assert 0 < planned.least_s <= min(left_s, planned.rows[-1].step_time_s)
    assert table(planned)[0] == table(found(replace(request_, prove_all=True), line))[0]
    assert replace(found(request_, line, pool=LocalPool(2)), wall_s=0) == replace(planned, wall_s=0)


def test_the_first_is_proved_by_as_much_work_as_if_it_alone_were_wanted_and_the_rest_is_a_count(monkeypatch):
    """Promising plans fill the table first; those that did not have to be timed are work, too."""
    request, line = PYTORCH
    alone = found(replace(request, top=1), line)
    assert (alone.ended, alone.rows[0].least_untimed_s) == (PROVED, None)
    timed = {}
    for most in (0, 3, 5):
        monkeypatch.setattr(search, "MOST_AFTER_FIRST", Work(most, MANY, MANY))
        planned = found(request, line)
        timed[most] = planned.timed
        assert planned.rows[0] == alone.rows[0]
        assert (planned.ended, planned.least_s is None) == (OUT_OF_WORK, False)
    assert alone.timed <= timed[0] <= alone.timed + request.top
    assert timed[0] < timed[3] <= timed[0] + 3
    assert timed[5] == timed[3] + 2
    every = found(replace(request, prove_all=True), line)
    assert {row.least_untimed_s for row in every.rows} == {None}
    assert every.timed > timed[5]


@pytest.mark.parametrize("kind", ["requests", "plans"])
def test_requests_and_passes_count_as_work_too(kind, monkeypatch):
    monkeypatch.setattr(search, "MOST_AFTER_FIRST", Work(MANY, MANY, MANY)._replace(**{kind: 0}))
    planned = found(*SMALL)
    assert planned.ended == OUT_OF_WORK
    assert planned.rows[0].least_untimed_s is None


def test_a_step_in_full_that_takes_longer_than_composed_is_proved_too(monkeypatch):
    """The search goes on until nothing is left below the time that the table has."""
    request, line = SMALL
    first, real, slower = found(replace(request, top=1), line), search_jobs.JobWorker.__call__, 1.3

    def slow(own, job):
        done = real(own, job)
        in_full = isinstance(job, StepJob) and job.effort == search_jobs.FULL
        return done | {"step_time_s": slower * done["step_time_s"]} if in_full else done

    monkeypatch.setattr(search_jobs.JobWorker, "__call__", slow)
    planned = found(replace(request, top=1), line, kept=ResultCache(None))
    assert (planned.ended, planned.rows[0].least_untimed_s) == (PROVED, None)
    assert planned.rows[0].step_time_s == slower * first.rows[0].step_time_s
    assert planned.timed > first.timed


class Signal:
    """A signal that comes at the `after`-th job, or when the search begins to look."""

    def __init__(self, monkeypatch):
        self._patch, self._jobs, self._look = monkeypatch, search_jobs.JobWorker.__call__, BoundLadder.climb

    def at_job(self, after):
        came = []

        def stopping(own, job):
            came.append(job)
            if len(came) > after:
                raise KeyboardInterrupt
            return self._jobs(own, job)

        self._patch.setattr(search_jobs.JobWorker, "__call__", stopping)
        self._patch.setattr(BoundLadder, "climb", self._look)

    def at_first_look(self):
        def stopping(*_):
            raise KeyboardInterrupt

        self._patch.setattr(BoundLadder, "climb", stopping)

    def never(self):
        self._patch.setattr(search_jobs.JobWorker, "__call__", self._jobs)
        self._patch.setattr(BoundLadder, "climb", self._look)


def interrupted(kept):
    with pytest.raises(InterruptedSearch) as stopped:
        found(*SMALL, kept=kept)
    return stopped.value.table


def test_neither_the_best_nor_the_bound_goes_back_when_a_search_is_started_again(tmp_path, monkeypatch):
    seen, real, came, kept = [], SearchState.text, Signal(monkeypatch), ResultCache(tmp_path)

    def noting(own):
        seen.append((own.best[0] if own.best else float("inf"), own.least_s))
        return real(own)

    monkeypatch.setattr(SearchState, "text", noting)
    tables = []
    for after in (14, None, 6, None):
        came.at_first_look() if after is None else came.at_job(after)
        tables.append(interrupted(kept))
    came.never()
    ended = found(*SMALL, kept=kept)
    bests, bounds = zip(*seen, strict=True)
    assert list(bests) == sorted(bests, reverse=True)
    assert list(bounds) == sorted(bounds)
    assert 0 < tables[0].least_s == tables[1].least_s < tables[2].least_s == tables[3].least_s
    assert table(tables[0]) == table(tables[1])
    assert tables[2].rows[0].step_time_s <= tables[1].rows[0].step_time_s
    assert replace(ended, wall_s=0) == replace(found(*SMALL, kept=ResultCache(None)), wall_s=0)


def test_an_interrupted_search_says_what_may_come_before_what_it_knows(tmp_path, steps, monkeypatch):
    request, line = SMALL
    Signal(monkeypatch).at_job(14)
    known = interrupted(ResultCache(tmp_path))
    assert known.ended == INTERRUPTED
    assert sum(known.decided.values()) == len(enumerated(request))
    assert known.decided["undecided"] > 0
    rows = {(row.plan, row.axes) for row in known.rows}
    left = [each for each in enumerated(request) if (step_words(each)) not in rows]
    monkeypatch.undo()
    left_s = min(step_s(request, each, line, composed=True) for each in left)
    assert rows
    assert all(row.step_time_s < left_s for row in known.rows if row.least_untimed_s is None)
    assert known.least_s <= left_s
    assert f"the search was interrupted; {STARTED_AGAIN}" in plans_report(known)


def step_words(candidate):
    return spell(candidate.plan), ",".join(candidate.axes)


def test_a_search_that_knows_no_step_has_no_table(tmp_path, monkeypatch):
    Signal(monkeypatch).at_job(0)
    assert interrupted(ResultCache(tmp_path)) is None


def test_what_is_kept_of_a_search_whose_steps_are_lost_is_not_believed(tmp_path, monkeypatch):
    came, kept = Signal(monkeypatch), ResultCache(tmp_path)
    came.at_job(14)
    assert interrupted(kept).least_s > 0
    kept._database.execute("DELETE FROM timed WHERE name LIKE 'step %'")
    came.at_first_look()
    assert interrupted(kept) is None


def test_every_row_says_whether_it_is_proved_and_the_words_are_explained_once(monkeypatch):
    monkeypatch.setattr(search, "MOST_AFTER_FIRST", Work(1, MANY, MANY))
    planned = found(*SMALL)
    text = plans_report(planned)
    assert text.count(PROOF) == 1
    words = [proof_text(row) for row in planned.rows]
    assert words[0] == "proved"
    assert words[-1].startswith("from ")
    lines = text.splitlines()[4 : 4 + len(words)]
    assert [each in line for each, line in zip(words, lines, strict=True)] == [True] * len(words)
    [column] = [each for each in _table(planned).columns if each.head == "proof"]
    assert [column.text(row) for row in planned.rows] == words
    assert any(each.startswith("not decided: ") and "prove_all=True proves all" in each for each in _search_sentences(planned))


def test_progress_tells_the_best_each_time_that_it_improves_and_when_it_is_proved():
    lines, states = [], []

    @contextmanager
    def progress(label, total, state=None):
        yield lambda *told: lines.extend(told)
        states.append((label, state and state()))

    planned = found(*SMALL, kept=ResultCache(None), progress=progress)
    assert all(line.startswith("so far the fastest: ") for line in lines[:-1])
    first = planned.rows[0]
    assert lines[-1].startswith(f"proved the fastest: {first.plan} in placement {first.axes}: ")
    assert len(lines) == len(set(lines))
    [told] = [state for label, state in states if label.startswith("searching ")]
    assert told.startswith(lines[-1].partition(";")[0])
    steps = int(told.partition(" steps and ")[0].rpartition(" ")[2])
    assert planned.timed <= steps <= planned.timed + search._AHEAD, "promising plans count that did not have to be timed"
    assert told.endswith("; 0 plans left that may be among the best 12")
    assert H100.name in plans_report(planned)


def test_a_best_plan_is_known_before_a_request_is_timed(monkeypatch):
    """Then the best is told, and plans above it need no requests."""
    jobs, real = [], search_jobs.JobWorker.__call__

    def noting(own, job):
        jobs.append(type(job))
        return real(own, job)

    monkeypatch.setattr(search_jobs.JobWorker, "__call__", noting)
    request, line = PYTORCH
    first = found(replace(request, top=1), line, kept=ResultCache(None))
    early, every = jobs.index(search_jobs.RequestJob) if search_jobs.RequestJob in jobs else len(jobs), len(jobs)
    assert 1 <= early <= 2 * search._AHEAD
    jobs.clear()
    monkeypatch.setattr(Search, "_is_time_to_try", lambda _: False)
    late = found(replace(request, top=1), line, kept=ResultCache(None))
    assert jobs[0] is search_jobs.RequestJob
    assert table(late) == table(first)
    assert every <= len(jobs) + 2 * search._AHEAD


def test_the_page_of_training_says_where_a_search_ends():
    page = " ".join((Path(__file__).parents[3] / "docs" / "training.md").read_text().split())
    first, after = search.MOST_WORK, search.MOST_AFTER_FIRST
    assert f"after {first.steps:,} steps, {first.requests:,} requests or {first.plans:,} plans" in page
    assert (
        f"composed {after.steps} more steps, timed {after.requests:,} more requests or generated {after.plans:,} more" in page
    )
