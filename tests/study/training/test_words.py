"""Words that name an algorithm for one axis: what they serve, and which of them are refused."""

import json
from dataclasses import replace

import pytest

from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.planning.find import find_plans
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.search.result_cache import ResultCache
from emu.study.training.axis_algorithms import check_axes
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.step.choices import choice_for, choice_of, with_choice
from emu.study.training.step.step import time_trace
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

SERVERS, BOARD = build_topology("servers:nodes=4,gpus=4"), build_topology("ub-mesh:board")
H100 = find_device("h100", "bfloat16")
PLAN = parse_plan("tp=4,sp,dp=4,sharding=zero1,microbatch=1", global_batch=4, seq=64)
GATHERED = Request("all_gather", tuple(range(8)), 0, 2**20)


def services(step) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for request, _, by in step.replayed.services:
        found.setdefault((request.axis, request.operation), set()).add(str(by))
    return found


def timed(words, trace=None, topology=SERVERS):
    trace = generate(find_model("llama-tiny"), PLAN, Stack(MEGATRON)) if trace is None else trace
    return time_trace(TraceLayout(trace, choice_for(trace, words, topology, "float32"), topology, H100, "float32"))


def test_a_word_for_an_axis_counts_more_than_one_for_all_in_any_order():
    for words in (("all_gather=bruck", "dp.all_gather=direct"), ("dp.all_gather=direct", "all_gather=bruck")):
        choice = Choice.parse(words)
        by_axis = [choice.algorithm_for(GATHERED._replace(axis=axis)).algorithm for axis in ("dp", "tp", "")]
        assert by_axis == ["direct", "bruck", "bruck"]


def test_auto_for_an_axis_beside_a_name_for_all_and_a_name_for_an_axis_beside_auto():
    best = choice_on(BOARD, ("auto",), "float32").algorithm_for(GATHERED)
    assert best.algorithm not in ("bruck", "ring")
    for words, on_dp, on_tp in (
        (("all_gather=bruck", "dp.all_gather=auto"), best, AlgorithmOnDims("bruck")),
        (("auto", "all_gather=bruck", "dp.all_gather=auto"), best, AlgorithmOnDims("bruck")),
        (("all_gather=auto", "dp.all_gather=bruck"), AlgorithmOnDims("bruck"), best),
        (("dp.all_gather=auto",), best, AlgorithmOnDims("ring")),
    ):
        choice = choice_on(BOARD, words, "float32")
        assert [choice.algorithm_for(GATHERED._replace(axis=axis)) for axis in ("dp", "tp")] == [on_dp, on_tp], words


def test_only_the_requests_of_its_axis_are_served_by_it_in_the_whole_graph_and_composed():
    rest = services(timed(("auto",)))
    own = services(timed(("auto", "dp.all_gather=bruck")))
    assert own.pop(("dp", "all_gather")) == {"bruck"} != rest.pop(("dp", "all_gather"))
    assert own == rest
    steps = []
    for words in (("auto",), ("auto", "dp.all_gather=bruck"), ("auto", "tp.all_gather=bruck"), ("auto", "all_gather=bruck")):
        request = EstimateRequest("llama-tiny", PLAN, Stack(MEGATRON), words)
        steps.append((estimate(request, SERVERS, H100), estimate(request, SERVERS, H100, effort=ALWAYS_COMPOSED)))
    for way in zip(*steps, strict=True):
        assert len({step.step_time_s for step in way}) == 4
        assert [step.algorithms["all_gather"].count("bruck") for step in way] == [0, 1, 1, 1]


def test_a_trace_is_served_again_as_it_was_by_words_for_an_axis_and_so_is_one_that_names_no_axes():
    words = ("all_gather=ring", "dp.all_gather=bruck")
    ran = timed(words)
    noted = with_choice(ran.trace, ran.choice)
    assert services(timed((), noted)) == services(ran)
    assert timed((), noted).report.step_time_s == ran.report.step_time_s
    asked = [each for each in ran.replayed.services if each.request.operation == "all_gather"]
    older = [[*each.request[:-1], str(each.by)] for each in asked]
    kept = replace(noted, meta=tuple((k, v if k != "requests" else json.dumps(older)) for k, v in noted.meta))
    for each in asked:
        assert choice_of(kept).algorithm_for(each.request) == each.by
    other = choice_for(noted, ("all_gather=direct",), SERVERS, "float32")
    assert {other.algorithm_for(each.request).algorithm for each in asked} == {"direct"}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("dq.all_gather=ring", "no axis with communication is called 'dq'; did you mean dp?"),
        ("dp.all_gahter=ring", "no operation is called 'all_gahter'; did you mean all_gather"),
        ("dp.all_gather=rign", "no all_gather algorithm is called 'rign'; did you mean ring"),
        ("dp.all_reduce=swing-boxes", "no all_reduce algorithm is called 'swing-boxes'; did you mean"),
        (
            "dp.all_gather=halving-doubling",
            "--algorithm: all_gather of dp must be one that groups of 6 ranks of .* can have, got 'halving-doubling'; known",
        ),
        ("tp.all_gather=in-switch", "all_gather of tp must be one that groups of 2 ranks of servers.* got 'in-switch'"),
    ],
)
def test_what_no_group_of_an_axis_can_have_is_refused_with_the_nearest(word, says):
    groups = {"tp": [[0, 1], [2, 3]], "dp": [[0, 2, 4, 6, 1, 3]]}
    with pytest.raises(InputError, match=says):
        check_axes((word,), groups, dict.fromkeys(groups, ("all_gather", "all_reduce")), SERVERS)


NEVER_ASKED = "no collective on tp is called 'all_to_all'; did you mean all_gather"


def test_an_estimate_refuses_a_word_for_an_operation_that_an_axis_never_asks_with_the_nearest():
    request = EstimateRequest("llama-tiny", PLAN, Stack(MEGATRON), ("auto", "tp.all_to_all=single-path"))
    with pytest.raises(InputError, match=NEVER_ASKED):
        estimate(request, SERVERS, H100)


def test_a_replay_refuses_a_word_for_an_operation_that_an_axis_never_asks_with_the_nearest():
    with pytest.raises(InputError, match=NEVER_ASKED):
        timed(("auto", "tp.all_to_all=single-path"))


def test_an_estimate_refuses_a_word_for_an_axis_that_its_plan_lacks():
    request = EstimateRequest("llama-tiny", PLAN, Stack(MEGATRON), ("auto", "pp.all_reduce=ring"))
    with pytest.raises(InputError, match="no axis with communication is called 'pp'; did you mean"):
        estimate(request, SERVERS, H100)


def test_a_search_serves_an_axis_by_its_word_where_a_plan_has_it_and_no_step_is_below_its_bound():
    request = PlanRequest(
        "llama-tiny",
        4,
        4,
        64,
        Stack(MEGATRON),
        ("auto", "dp.all_gather=bruck"),
        "sharding=zero1,recompute=none",
        top=10,
    )
    named = find_plans(request, [SERVERS], H100, ResultCache(None))
    gathers = [row for row in named.rows if "dp=" in row.plan and "cp=" not in row.plan]
    assert gathers
    assert all("bruck" in row.algorithms["all_gather"] for row in gathers)
    assert all(row.bound_s is None or row.bound_s <= row.step_time_s * (1 + 1e-9) for row in named.rows)


def test_a_search_refuses_a_word_for_an_axis_that_none_of_its_plans_has():
    request = PlanRequest("llama-tiny", 4, 4, 64, Stack(MEGATRON), ("dp.all_gather=bruck",), "dp=1")
    with pytest.raises(InputError, match="no axis of the plans searched is called 'dp'; did you mean"):
        find_plans(request, [SERVERS], H100, ResultCache(None))


def test_switches_that_the_library_lets_add_serve_a_word_in_an_estimate_and_in_a_search():
    """NVIDIA's switches add for NCCL: groups of four GPUs of a server can have what all others are refused."""
    words = ("tp.all_reduce=in-switch",)
    request = EstimateRequest("llama-tiny", PLAN, Stack(MEGATRON, library="nccl"), words)
    with pytest.raises(InputError, match=r"groups of 4 ranks of .* can have, got 'in-switch'"):
        estimate(replace(request, stack=Stack(MEGATRON)), SERVERS, H100)
    assert "in-switch" in str(estimate(request, SERVERS, H100).algorithms["all_reduce"])
    asked = PlanRequest("llama-tiny", 16, 4, 64, request.stack, words, "tp=4,sp=off,pp=1,sharding=zero1,recompute=none", top=2)
    found = find_plans(asked, [SERVERS], H100, ResultCache(None))
    assert all("in-switch" in str(row.algorithms["all_reduce"]) for row in found.rows)
    assert found.rows
