"""A search finds what timing every candidate finds, whatever stops it and however often it is asked."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from emu import store
from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.study.job_pool import LocalPool
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.find import STARTED_AGAIN
from emu.study.planning.plan_request import Candidate
from emu.study.planning.plan_row import OUT_OF_WORK, PROVED, parts_s, reason_of
from emu.study.planning.search import search, search_jobs
from emu.study.planning.search.result_cache import ResultCache
from launch.show.text.estimate_table import plans_report
from tests.study.planning.spaces import (
    H100,
    asked,
    candidates,
    drawn,
    enumerated,
    exhaustive,
    found,
    of,
    step_s,
    table,
    tightest_s,
    times,
)

SMALL = (asked("llama-tiny", 2, 2, 64, by=("auto",)), "ub-mesh:board")


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))]
LARGE = [
    (asked("llama-tiny", 64, 2, 64, top=10), "servers:nodes=8,gpus=8"),
    (asked("gpt-moe-tiny", 16, 1, 64, top=10), "ub-mesh:rack"),
    (asked("deepseek-tiny", 16, 1, 64, top=10), "torus:dims=4x4x4,bandwidth=50GB/s,latency=500ns"),
    (asked("llama-tiny", 8, 2, 64, "pytorch", top=10), "fat-tree:radix=4"),
    (asked("llama-tiny", 64, 4, 64, top=10), "ub-mesh:rack"),
]


# Eight questions, all of whose plans are timed:
# python -m pytest -m "slow or not slow" tests/study/planning/test_find.py -k search_finds
EIGHT = [
    SMALL,
    (asked("llama-tiny", 2, 1, 64, "pytorch"), "servers:nodes=2,gpus=2"),
    (asked("llama-tiny", 4, 2, 64, top=10), "servers:nodes=2,gpus=2,nic=10GB/s"),
    (asked("llama-tiny", 4, 2, 64, "pytorch", top=10), "switch:n=8,bandwidth=5GB/s,latency=1us"),
    (asked("gpt-moe-tiny", 4, 2, 64, top=10), "fat-tree:radix=4"),
    (asked("mixtral-tiny", 4, 1, 64, "pytorch", top=10), "servers:nodes=2,gpus=2,nic=1GB/s"),
    (asked("deepseek-tiny", 4, 2, 32, top=10), "torus:dims=4x4x4,bandwidth=50GB/s,latency=500ns"),
    (asked("nemotron-tiny", 6, 6, 48, top=10), "ub-mesh:board"),
]


@pytest.mark.parametrize(
    ("request_", "line"), [*EIGHT[:2], *(pytest.param(*each, marks=pytest.mark.slow) for each in EIGHT[2:])]
)
def test_a_search_finds_what_timing_every_candidate_finds(request_, line):
    planned = found(request_, line)
    assert table(planned) == exhaustive(request_, line)
    assert planned.timed <= planned.candidates <= len(enumerated(request_)) == sum(planned.decided.values())
    assert len(planned.rows) == request_.top


def test_what_a_bound_decides_are_candidates_that_it_puts_behind_the_last_of_the_table():
    """The search leaves out exactly the candidates whose bound is above the last plan of the table."""
    request, line = SMALL
    every, best, placed, decided = enumerated(request), {}, of(request, line), found(request, line).decided
    for each in every:
        took_s = step_s(request, each, line, composed=True)
        best[each.plan] = min(took_s, best.get(each.plan, took_s))
    worst_s = sorted(best.values())[request.top - 1]
    behind = sum(placed.anywhere_s(each.plan)[0] > worst_s for each in every)
    assert (decided["memory"], decided["bound"]) == (0, behind)
    assert 0 < behind < len(every) - request.top


def test_one_npu_that_asks_nobody_has_a_plan():
    one = asked("llama-tiny", 1, 1, 64, top=1)
    assert table(found(one, SMALL[1])) == exhaustive(one, SMALL[1])


def test_words_that_are_given_are_of_every_plan_searched():
    request = replace(SMALL[0], given="tp=2,recompute=full", top=12)
    planned = found(request, SMALL[1])
    every = found(replace(SMALL[0], top=10**6), SMALL[1])
    wanted = [row for row in every.rows if "tp=2" in row.plan and "recompute=full" in row.plan]
    assert {(row.plan, row.step_time_s) for row in planned.rows} == {(row.plan, row.step_time_s) for row in wanted[:12]}
    assert 0 < planned.plans < every.plans
    assert planned.given == "tp=2,recompute=full"
    own = found(replace(SMALL[0], given="tp=2,clip=0,microbatch=2"), SMALL[1])  # not searched unless given
    assert all("clip=0" in row.plan for row in own.rows)


def test_a_vocabulary_that_is_filled_up_is_told(tmp_path):
    """250 words divide by 2, and not by 4."""
    sizes = "layers = 2\nhidden = 64\nheads = 8\nkv_heads = 4\nffn = 192\nvocab = 250\nmax_seq = 512\n"
    (tmp_path / "odd.toml").write_text(f'architecture = "llama"\n{sizes}')
    request = asked(str(tmp_path / "odd.toml"), 4, 4, 64, top=2)
    told = "the vocabulary of 250 is filled up to 512, a multiple of 128 x tp=4; MFU counts its own"
    assert told in found(replace(request, given="tp=4"), SMALL[1]).assumptions
    assert not any("filled up" in each for each in found(replace(request, given="tp=2"), SMALL[1]).assumptions)


def test_words_that_no_plan_has_are_refused_with_the_reason():
    with pytest.raises(InputError, match=r"^plan: no plan of 2 NPUs has vp=2,pp=1: plan: vp must be 1 where pp=1, got 2$"):
        found(replace(SMALL[0], given="vp=2,pp=1"), SMALL[1])
    with pytest.raises(
        InputError, match=r"^plan: npus must be such that .*, with tp=3 and software=megatron, got 2; give fewer"
    ):
        found(replace(SMALL[0], given="tp=3"), SMALL[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_of_a_space_at_random_finds_what_timing_every_candidate_finds(seed):
    same(*drawn(seed, *((24, 4) if seed < 2 else (300, 64))))


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "line"), LARGE)
def test_a_search_of_hundreds_of_plans_finds_what_timing_every_candidate_finds(request_, line):
    same(request_, line, H100)


def same(request, line, device):
    """Assert that a search finds what timing all finds, and that no bound of a candidate is above its time."""
    right = exhaustive(request, line, device)
    if not right:
        with pytest.raises(InputError, match="no plan of"):
            found(request, line, device=device)
        return
    assert table(found(request, line, device=device)) == right
    placed = of(request, line)
    for each in candidates(request):
        try:
            took_s = step_s(request, each, line, composed=True)
        except InputError:  # no such step can be composed
            continue
        there = tightest_s(placed, each, times(request, line))
        assert placed.anywhere_s(each.plan)[0] <= there * (1 + 1e-12), "two sums of equal times may differ in the last bit"
        assert there <= took_s


def test_a_step_that_is_composed_again_takes_as_long():
    """Ranks of a place whose optimizers differ are told by the one that does most, whoever was asked before."""
    request, line = asked("llama-tiny", 8, 1, 32, "pytorch"), "switch:n=64,bandwidth=50GB/s,latency=500ns"
    plan = parse_plan("cp=4,pp=2,order=gpipe,sharding=zero1,cp_comm=all_gather", global_batch=1, seq=32)
    each = Candidate(0, plan, ("cp", "pp"))
    assert len({step_s.__wrapped__(request, each, line, composed=True) for _ in range(5)}) == 1


def test_a_device_of_little_memory_has_only_plans_that_fit():
    first = found(*SMALL).rows[0].peak_memory_bytes
    small = replace(H100, memory_bytes=first - 1)
    planned = found(*SMALL, device=small)
    assert table(planned) == exhaustive(*SMALL, device=small)
    assert table(planned) != table(found(*SMALL))
    assert all(row.peak_memory_bytes < first for row in planned.rows)


def test_what_is_interrupted_goes_on_where_it_stopped_and_finds_the_same(tmp_path, monkeypatch):
    whole, began, most = found(*SMALL), [], [7]
    real = search_jobs.JobWorker.__call__

    def stopping(own, job):
        if len(began) == most[0]:
            raise KeyboardInterrupt
        began.append(job.request.name if isinstance(job, search_jobs.RequestJob) else job)
        return real(own, job)

    monkeypatch.setattr(search_jobs.JobWorker, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt) as stopped:
        found(*SMALL, kept=ResultCache(tmp_path))
    [told] = stopped.value.cause.__notes__
    assert told.endswith(f"; {STARTED_AGAIN}")
    assert float(told.partition("no plan that is left takes less than ")[2].split()[0]) > 0
    first, most[0] = began[:], -1
    again = found(*SMALL, kept=ResultCache(tmp_path))
    assert table(again) == table(whole)
    assert (again.front, again.seen, again.timed) == (whole.front, whole.seen, whole.timed)
    assert len(first) == 7
    assert len(began) == len(set(began))  # nothing was timed twice
    times = len(began)
    assert table(found(*SMALL, kept=ResultCache(tmp_path))) == table(whole)
    assert len(began) == times > 7


def test_several_processes_find_what_one_finds():
    assert replace(found(*SMALL, pool=LocalPool(2)), wall_s=0) == replace(found(*SMALL), wall_s=0)


def test_a_plan_beside_is_ranked_with_those_found():
    slow = parse_plan("pp=2,microbatch=1,recompute=full", global_batch=2, seq=64)
    planned = found(replace(SMALL[0], beside=(slow,)), SMALL[1])
    assert [row.beside for row in planned.rows] == [False] * 4 + [True]
    assert planned.rows[-1].plan == "pp=2,recompute=full,microbatch=1"
    best = parse_plan(planned.rows[0].plan, global_batch=2, seq=64)
    again = found(replace(SMALL[0], beside=(best,)), SMALL[1])
    assert [row.beside for row in again.rows] == [True] + [False] * 3


def test_a_reason_names_the_part_whose_difference_is_largest():
    planned = found(replace(SMALL[0], top=12), SMALL[1])
    first = planned.rows[0]
    for row in planned.rows[1:]:
        own, other = parts_s(row), parts_s(first)
        assert sum(own.values()) == pytest.approx(row.step_time_s)
        worst = max(own, key=lambda part: own[part] - other.get(part, 0.0))
        word = {"compute": "computation", "bubble": "bubble", "straggling": "straggling"}.get(worst, f"({worst})")
        assert word in row.why
        assert row.why == reason_of(row, first)


def test_the_front_has_no_plan_that_another_beats_in_both():
    planned = found(replace(SMALL[0], top=12), SMALL[1])
    front = [(row.peak_memory_bytes, row.mfu) for row in planned.front]
    assert front == sorted(front)
    for memory, mfu in planned.seen:
        assert any(size <= memory and reached >= mfu for size, reached in front)


def test_where_no_plan_fits_the_nearest_is_named_with_what_it_lacks():
    with pytest.raises(
        InputError, match=r"^plan: no plan of 2 NPUs fits llama-tiny into the 1000 B of the h100: the nearest, .*"
    ):
        found(*SMALL, device=replace(H100, memory_bytes=1000))
    with pytest.raises(InputError, match=r"^plan: npus must be such that llama-tiny .*, got 11; take a power of two"):
        found(asked("llama-tiny", 11, 4, 64), "ub-mesh:rack")
    with pytest.raises(InputError, match=r"^placement: 16 ranks do not fit ub-mesh:board"):
        found(asked("llama-tiny", 16, 16, 64), SMALL[1])
    other = parse_plan("dp=4", global_batch=4, seq=64)
    with pytest.raises(InputError, match=r"^plan: beside must be a plan of the 2 NPUs, got 'dp=4,microbatch=1 of 4'"):
        found(replace(SMALL[0], beside=(other,)), SMALL[1])


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "plans.sqlite").write_text("something else, long enough to be no database at all" * 40)
    with pytest.raises(InputError, match=r"^plan: cache must be a folder that can be written, .* take another --cache$"):
        ResultCache(tmp_path)


def test_a_search_goes_on_beside_one_that_has_the_file_of_results(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_WAIT_S", 0.05)
    mine = ResultCache(tmp_path)
    mine.write("before", {"s": 1})
    with closing(sqlite3.connect(tmp_path / "plans.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        mine.write("meanwhile", {"s": 2})
        assert mine.read("before") == {"s": 1}
    assert mine.read("meanwhile") is None


def test_a_search_of_too_many_steps_ends_and_says_what_it_did_not_decide(monkeypatch):
    """One process and two end with the same table, and the least bound that was not decided is told."""
    request, line = replace(SMALL[0], top=12), SMALL[1]
    whole = found(request, line)
    assert (whole.decided["undecided"], whole.least_s, whole.ended) == (0, None, PROVED)
    monkeypatch.setattr(search, "MOST_WORK", search.MOST_WORK._replace(steps=12))
    ended = limited(request, line)
    decided = ended.decided
    assert sum(decided.values()) == sum(whole.decided.values())
    assert (decided["composed"], decided["undecided"] > 0, ended.ended) == (12, True, OUT_OF_WORK)
    assert f"\nnot decided     {decided['undecided']:,} candidates, none of which takes less than " in plans_report(ended)
    assert "not decided" not in plans_report(whole)
    assert 0 < ended.least_s <= ended.rows[-1].step_time_s
    assert {row.plan for row in ended.rows} <= {row.plan for row in found(replace(request, top=10**6), line).rows}


@pytest.mark.parametrize(("most", "few"), [("requests", 3), ("plans", 10)])
def test_a_search_of_pytorchs_plans_leaves_those_that_would_take_too_long_to_bound(monkeypatch, most, few):
    request, line = asked("llama-tiny", 2, 2, 64, "pytorch", top=2), "servers:nodes=2,gpus=2"
    whole = found(request, line)
    monkeypatch.setattr(search, "MOST_WORK", search.MOST_WORK._replace(**{most: few}))
    ended = limited(request, line)
    assert ended.decided["undecided"] > 0
    assert sum(ended.decided.values()) == sum(whole.decided.values())
    assert ended.least_s <= whole.rows[-1].step_time_s
    assert ended.rows[0].step_time_s >= whole.rows[0].step_time_s


def test_a_search_of_too_many_requests_goes_on_without_their_times(monkeypatch):
    request, line, asked_for, real = replace(SMALL[0], top=3), SMALL[1], [], search_jobs.JobWorker.__call__

    def noting(own, job):
        asked_for.extend([job] if isinstance(job, search_jobs.RequestJob) else [])
        return real(own, job)

    monkeypatch.setattr(search_jobs.JobWorker, "__call__", noting)
    whole = found(request, line, kept=ResultCache(None))
    assert len(asked_for) > 3
    asked_for.clear()
    monkeypatch.setattr(search, "MOST_WORK", search.MOST_WORK._replace(requests=3))
    few = found(replace(request, prove_all=False), line, kept=ResultCache(None))
    assert len(asked_for) == 3
    assert table(few) == table(whole)
    assert few.decided["composed"] >= whole.decided["composed"]


def limited(request, line):
    """Return the table of a search that its work limits; one process and two give the same."""
    one, two = (found(replace(request, prove_all=False), line, pool=LocalPool(processes)) for processes in (1, 2))
    assert replace(one, wall_s=0) == replace(two, wall_s=0)
    return one


def test_bounds_that_are_too_high_are_seen(monkeypatch):
    """Were candidates dropped whose bounds are not above the last of the table, the search would differ."""
    request, line = replace(SMALL[0], top=2), SMALL[1]
    anywhere, nearer, right = CandidateBounds.anywhere_s, CandidateBounds.tighter, exhaustive(*SMALL)[:2]
    monkeypatch.setattr("emu.study.planning.search.frontier._TOGETHER", 1)
    assert table(found(request, line)) == right
    with monkeypatch.context() as wrong:
        wrong.setattr(CandidateBounds, "anywhere_s", lambda self, plan: [1 / each for each in anywhere(self, plan)])
        assert table(found(request, line)) != right
    with monkeypatch.context() as wrong:
        wrong.setattr(
            CandidateBounds, "tighter", lambda *args: [(1 / least_s, is_final) for least_s, is_final in nearer(*args)]
        )
        assert table(found(request, line)) != right
