"""The choice for each request of a run: the fastest on the fabric, the same for the executor, the clock and a replay."""

import pickle
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.record import Recording
from emu.cluster import cluster
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.errors import InputError
from emu.study.choice.chooser import ChooserOnNpus, choice_on
from emu.study.choice.site import Site, candidates
from emu.study.training.step.choices import choice_for, choice_of, with_choice
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import Service
from emu.trace.trace import Trace
from emu.trace.trace_file import load, save

DEVICE = Device("a-device", {"float32": 1e12, "bfloat16": 2e12}, hbm_Bps=1e12)
TORUS = "torus:dims=4x4,bandwidth=50GB/s,latency=500ns"
SWITCH = "dgx-h100:adds=yes"
WHOLE, ROW, CORNERS = tuple(range(16)), (4, 5, 6, 7), (0, 2, 8, 10)


def test_what_is_chosen_depends_on_bytes_and_on_where_the_group_is() -> None:
    choose = ChooserOnNpus(build_topology(TORUS), "float32")
    sizes = [choose(Request("all_reduce", WHOLE, 0, elements)) for elements in (1, 2**24)]
    places = [choose(Request("all_reduce", ranks, 0, 2**20)) for ranks in (ROW, CORNERS)]
    assert len(set(sizes)) == len(set(places)) == 2


def test_a_chooser_is_a_function_of_topology_request_and_timed_dtype() -> None:
    request = Request("all_reduce", WHOLE, 0, 3000)
    assert len({ChooserOnNpus(build_topology(TORUS), "float32")(request) for _ in range(2)}) == 1
    choose, wide = (ChooserOnNpus(build_topology(TORUS), dtype) for dtype in ("bfloat16", "float32"))
    asked = [Request("all_reduce", CORNERS, 0, 2**exponent) for exponent in range(4, 22)]
    served = [wide(request) for request in asked]
    assert served[1:] != served[:-1]
    assert [choose(request) for request in asked[1:]] == served[:-1]
    assert [choose(request._replace(dtype="int16")) for request in asked[1:]] == served[:-1]
    assert [choose(request._replace(dtype="bool")) for request in asked[2:]] == served[:-2]
    assert [choose(request._replace(dtype="complex64")) for request in asked[:-1]] == served[1:]


def test_words_in_any_order_and_a_name_that_overrides() -> None:
    choice = choice_on(build_topology(SWITCH), ("all_reduce=ring", "auto"), "float32")
    request = Request("all_reduce", tuple(range(8)), 0, 2**20)
    assert choice.algorithm_for(request).algorithm == "ring"
    assert choice_on(build_topology(SWITCH), ("auto",), "float32").algorithm_for(request).algorithm == "in-switch"
    assert choice_on(build_topology(SWITCH), (), "float32") == Choice()


def test_auto_for_one_operation_leaves_the_others_as_they_were() -> None:
    """The others are served by default, as named beside it, or as they ran; of several words for one the last counts."""
    on, dtype = build_topology(SWITCH), "float32"
    best = choice_on(on, ("auto",), dtype)
    reduced, gathered = (Request(name, tuple(range(8)), 0, 2**20) for name in ("all_reduce", "all_gather"))
    usual = AlgorithmOnDims("ring"), AlgorithmOnDims("bruck")
    ran = Choice({"all_gather": "bruck", "all_reduce": "torus-buckets"}, {"all_reduce": (2, 4), "all_gather": ()})
    assert best.algorithm_for(reduced) not in (Choice().algorithm_for(reduced), ran.algorithm_for(reduced))
    assert best.algorithm_for(gathered) not in usual
    for words, before, expected in (
        (("all_reduce=auto",), None, (best.algorithm_for(reduced), usual[0])),
        (("all_gather=bruck", "all_reduce=auto"), None, (best.algorithm_for(reduced), usual[1])),
        (("all_reduce=auto",), ran, (best.algorithm_for(reduced), usual[1])),
        (("all_gather=auto",), ran, (AlgorithmOnDims("torus-buckets", (2, 4)), best.algorithm_for(gathered))),
        (("all_gather=auto", "all_gather=ring"), ran, (AlgorithmOnDims("torus-buckets", (2, 4)), usual[0])),
        (("all_gather=ring", "all_gather=auto"), ran, (AlgorithmOnDims("torus-buckets", (2, 4)), best.algorithm_for(gathered))),
        (("all_reduce=direct",), ran, (AlgorithmOnDims("direct"), usual[1])),  # not on the grid of what ran
        (("auto", "all_gather=bruck"), ran, (best.algorithm_for(reduced), usual[1])),
        (("auto", "all_reduce=auto"), ran, (best.algorithm_for(reduced), best.algorithm_for(gathered))),
        ((), ran, (AlgorithmOnDims("torus-buckets", (2, 4)), usual[1])),
    ):
        choice = choice_on(on, words, dtype, before)
        assert (choice.algorithm_for(reduced), choice.algorithm_for(gathered)) == expected, words


def test_auto_does_not_ask_for_an_algorithm_that_only_the_run_knew(ran) -> None:
    _, trace, _ = ran
    own = replace(trace, meta=(("algorithms", "all_reduce=my-own"),))
    topology, request = build_topology(SWITCH), Request("all_reduce", tuple(range(4)), 0, 2**20)
    assert choice_for(own, ("auto",), topology, "bfloat16").algorithm_for(request) == ChooserOnNpus(topology, "bfloat16")(
        request
    )
    with pytest.raises(InputError, match="no all_reduce algorithm is called 'my-own'"):
        choice_for(own, (), topology, "bfloat16")


def test_auto_for_one_operation_leaves_what_auto_chose_for_the_others_when_it_ran(ran) -> None:
    choice, trace, _ = ran
    noted = with_choice(trace, choice)
    mixed = choice_for(noted, ("all_reduce=auto",), build_topology(SWITCH), "bfloat16")
    chosen, kept = (services(noted, each, SWITCH) for each in (mixed, choice_of(noted)))
    anew = services(noted, choice_for(noted, ("auto",), build_topology(SWITCH), "bfloat16"), SWITCH)
    reduced = [{each for each in of if each.request.operation == "all_reduce"} for of in (chosen, kept, anew)]
    others = [set(of) - mine for of, mine in zip((chosen, kept), reduced, strict=False)]
    assert others[0] == others[1] != set()
    assert reduced[0] == reduced[2] != reduced[1]


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(InputError, match="no operation is called 'all_redcue'; did you mean all_reduce"):
        choice_on(build_topology(SWITCH), ("all_redcue=auto",), "float32")
    with pytest.raises(InputError, match="must be auto or OPERATION=ALGORITHM, got 'atuo'"):
        choice_on(build_topology(SWITCH), ("atuo",), "float32")
    with pytest.raises(InputError, match="no dtype is called 'bfloat61'; did you mean bfloat16"):
        choice_on(build_topology(SWITCH), ("auto",), "bfloat61")
    with pytest.raises(InputError, match=f"^choice: no algorithm of all_ready fits 8 ranks of {SWITCH}; take another number"):
        candidates("all_ready", Site.first(build_topology(SWITCH)))


def train(rank: int) -> None:
    """Gradients of 4 B and of 4 MiB, one all_to_all of uneven pieces, and a group of two ranks."""
    torch.manual_seed(0)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    layers = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1, bias=False))
    module = DistributedDataParallel(layers, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.ones(1, 1024)).sum().backward()
        dist.all_reduce(torch.ones(1), group=pairs[rank // 2])
        given = torch.ones(10)
        dist.all_to_all_single(given.new_empty(4 * (rank + 1)), given, [rank + 1] * 4, [1, 2, 3, 4])
        optimizer.step()


@pytest.fixture(scope="module")
def ran() -> tuple[Choice, Trace, set[object]]:
    """A run served by `auto`: its choice, its trace, and what was asked and which schedules were executed in it."""
    choose, executed = ChooserOnNpus(build_topology(TORUS), "bfloat16"), set()

    def asked(request: Request) -> AlgorithmOnDims:
        executed.add(request)
        return choose(request)

    def seen(plan, *args, **kwargs):
        executed.add(plan.digest())
        execute(plan, *args, **kwargs)

    execute, recording = cluster.execute, Recording(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "execute", seen)
        ThreadRanks(4, Choice(chooser=asked), recording).run(train)
    return Choice(chooser=choose), recording.trace(), executed


def services(trace: Trace, choice: Choice, topology: str, dtype: str = "bfloat16") -> tuple[Service, ...]:
    return time_trace(TraceLayout(trace, choice, build_topology(topology), DEVICE, dtype)).replayed.services


def test_what_is_timed_is_what_ran(ran) -> None:
    choice, trace, executed = ran
    served = services(trace, choice, TORUS)
    timed = {choice.schedule(each.request).digest() for each in served}
    assert timed <= executed  # set-up is executed and not timed
    assert {each.request for each in served} <= executed
    assert len({each.by for each in served if each.request.operation == "all_reduce"}) > 1
    assert Request("all_to_all", (0, 1, 2, 3), 0, 16, "float32", axis="world") in {
        each.request for each in served
    }  # the largest member's


def test_a_saved_trace_is_served_as_its_run_was_on_any_fabric_and_in_any_dtype(ran, tmp_path) -> None:
    choice, trace, _ = ran
    save(with_choice(trace, choice), tmp_path / "t.trace")
    again = load(tmp_path / "t.trace")
    ran_by = {each.request: each.by for each in services(trace, choice, TORUS)}
    for topology, dtype in ((TORUS, "bfloat16"), (SWITCH, "float32")):
        assert {each.request: each.by for each in services(again, choice_of(again), topology, dtype)} == ran_by
    named = services(again, choice_for(again, ("all_reduce=direct",), build_topology(TORUS), "bfloat16"), TORUS)
    assert {str(each.by) for each in named if each.request.operation == "all_reduce"} == {"direct"}


def test_auto_of_a_replay_chooses_for_its_own_fabric_and_a_run_served_otherwise_is_said(ran) -> None:
    choice, trace, _ = ran
    noted, said = with_choice(trace, choice), "the run itself was served by other algorithms"
    timed = time_trace(TraceLayout(noted, choice_for(noted, ("auto",), build_topology(SWITCH), "bfloat16"), *on(SWITCH)))
    assert {str(each.by) for each in timed.replayed.services} >= {"in-switch"}
    assert any(words.startswith(said) for words in timed.assumptions())
    own = time_trace(TraceLayout(noted, choice_for(noted, (), build_topology(TORUS), "bfloat16"), *on(TORUS)))
    assert not any(words.startswith(said) for words in own.assumptions())


def on(topology: str):
    return build_topology(topology), DEVICE, "bfloat16"


def test_a_choice_travels_between_processes_with_its_table(ran) -> None:
    choice, trace, _ = ran
    table = choice_of(with_choice(trace, choice))
    again = pickle.loads(pickle.dumps(table))
    assert all(again.algorithm_for(each.request) == each.by for each in services(trace, choice, TORUS))


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
def test_a_group_for_which_no_schedule_is_made_has_the_default(operation: str) -> None:
    choice, alone = (
        choice_on(build_topology(TORUS), (f"{operation}=synthesized",), "float32"),
        Request(operation, (0,), 0, 2**10),
    )
    assert choice.algorithm_for(alone) == Choice().algorithm_for(alone)
