"""Topologies whose messages choose their way, as a person meets them: what a step shows, and what is refused in a line."""

import numpy as np
import pytest

from emu.arrays import column
from emu.collective.algorithm import algorithm
from emu.collective.choice import Choice
from emu.collective.operation import operation
from emu.errors import InputError
from emu.fabric.packet_fabric import packet_fabric
from emu.fabric.run import run_graph
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.timing import CollectiveJob, time_bound, time_collective
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.step.packet_step import by_packets
from emu.study.training.step.step import time_trace
from emu.study.training.step_choice.algorithm_search import TimingEffort
from emu.study.training.timed_step import time_step
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace_file import save
from launch.data.devices import find_device
from tests.study.jobs.test_least_loaded import OWN, placed

TREE = "fat-tree:radix=4,route=least-loaded"


@pytest.fixture(scope="module")
def trace():
    """A trace of a step of eight ranks."""
    return generate(find_model("llama-tiny"), Plan(dp=8, global_batch=8, seq=16), Stack())


@pytest.fixture
def traced(tmp_path, trace) -> str:
    save(trace, tmp_path / "step.trace")
    return str(tmp_path / "step.trace")


def test_a_step_shows_the_ways_that_were_taken(emu, traced) -> None:
    """The links from switch to switch carry, over the step, what the timeline of the run says that they carried."""
    (row,) = emu("replay", traced, "--topology", TREE, "--json").json
    assert row["step_time_s"] > 0
    assert "takes, of the ways up of its pair, the one with the least on it when it starts" in " ".join(row["assumptions"])
    (checked,) = emu("replay", traced, "--topology", TREE, "--check-fabric", "--network", "roce", "--json").json
    assert checked["fabric_check"]["runs"] == 8
    assert abs(checked["fabric_check"]["least"] - 1) < 0.2


def layout_of(trace, topology):
    return TraceLayout(trace, Choice({"all_reduce": "direct"}), topology, find_device("h100", "float32"), "float32")


def test_the_link_use_of_a_step_is_that_of_the_chosen_ways(trace) -> None:
    topology = build_topology(TREE)
    layout = layout_of(trace, topology)
    timed = time_trace(layout)
    assert timed.timeline.way is not None
    assert (timed.timeline.way > 0).any()
    graph = timed.replayed.graph
    assert graph.ways is None
    carried = np.bincount(graph.hop_link, graph.size_bytes[graph.hop_task], graph.n_links)
    assert timed.timeline.carried_bytes == pytest.approx(carried)
    lasts_s = (timed.report.ended_fs - timed.report.began_fs) / 10**15
    assert timed.link_busy * lasts_s == pytest.approx(carried / graph.capacity_Bps)
    quick = time_trace(layout, delays=True)  # no collective is one delay here
    assert quick.report.step_time_s == timed.report.step_time_s
    assert (run_graph(layout.build_graph(None).graph).end_fs == timed.timeline.end_fs).all()


def test_a_step_by_packets_chooses_as_well(trace) -> None:
    timed = time_trace(layout_of(trace, build_topology(TREE)))
    found = by_packets(timed, packet_fabric("packets", "roce"))
    assert found.report.step_time_s == pytest.approx(timed.report.step_time_s, rel=0.1)
    busy = found.timeline.busy_s(build_topology(TREE).capacity_Bps) / found.timeline.end_s
    assert found.link_busy == pytest.approx(busy)


@pytest.mark.parametrize("every_row", [False, True])
@pytest.mark.parametrize("name", ["pairwise", "bruck"])
@pytest.mark.parametrize(
    "word", [TREE, "ub-mesh:board:route=least-loaded-detour", "hpn:pod:dims=2x2x2,aggs=2,route=least-loaded"]
)
def test_no_time_is_below_its_bound(word, name, every_row) -> None:
    """The links that all ways have in common, and the least latency, bound every choice."""
    topology = build_topology(word)
    op, plan = operation("all_to_all", 8), algorithm("all_to_all", name).compact_schedule(8)
    job = CollectiveJob(op, plan.expand() if every_row else plan, 2**18, 4, topology, column(np.arange(8), np.int32))
    bound = time_bound(job)
    assert bound.messages > 0
    assert bound.end_fs <= time_collective(job).end_fs.max()
    assert bound.end_fs > 0 or (word.startswith("ub-mesh") and not every_row)  # whose ways have no link in common


REFUSED = {
    ("run", "--ranks", "8", "--pace", "1000"): "pace: the topology must be one with fixed routes, got 'fat-tree:radix=4,route",
    ("replay", "--fault", "link 0-8 at 1us"): "fault: the topology of faults at times must be one with fixed routes, got",
}


@pytest.mark.parametrize(("words", "line"), REFUSED.items())
def test_what_needs_fixed_routes_is_refused_in_one_line(emu, traced, tmp_path, words, line) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\n")
    done = emu(words[0], *words[1:], "--topology", TREE, str(script) if words[0] == "run" else traced)
    assert (done.code, done.out) == (2, "")
    assert line in done.err
    assert done.err.count("\n") == 1


def test_a_composed_step_is_refused_in_one_line(trace) -> None:
    request = EstimateRequest("llama-tiny", Plan(dp=8, global_batch=8, seq=16))
    line = "compose: the topology must be one with fixed routes where a step is composed of requests that are timed alone"
    with pytest.raises(InputError, match=line):
        estimate(request, build_topology(TREE), find_device("h100", "float32"), TimingEffort(most_events=10))
    with pytest.raises(InputError, match=line):
        time_step(layout_of(trace, build_topology(TREE)), most_events=10)


def test_jobs_beside_one_another_are_refused() -> None:
    with pytest.raises(InputError, match=r"jobs: messages of hpn:pod.*choose their way, which shares of links do not show"):
        placed(OWN, "hpn:pod:dims=2x8x8,route=least-loaded")


WORDS = {
    "fat-tree:radix=4,route=least": "route must be hash or disjoint or spray or least-loaded, got 'least'",
    "ub-mesh:rack:route=least-loaded-borrow": "HRS to borrow from are in ub-mesh:superpod",
    "ub-mesh:rack:route=least": "least-loaded or least-loaded-detour or least-loaded-borrow, got 'least'",
    "hpn:route=least-loaded-detour": "hash-independent or spray or least-loaded, got 'least-loaded-detour'",
    "hpn:dcn-plus:route=least-loaded": "a spray must be over at most 16384 ways of a pair",
}


@pytest.mark.parametrize(("word", "line"), WORDS.items())
def test_words_that_are_none_are_refused(emu, word, line) -> None:
    done = emu("bench", "all_to_all", "--topology", word, "--size", "1MiB", "--timing-only")
    assert (done.code, done.out) == (2, "")
    assert line in done.err
