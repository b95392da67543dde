"""Training steps of a job (6.4) on the nodes that a placement assigns, over a data-centre network with oversubscribed ToRs.

TP groups are rings of the HBD, CP is between groups of one ToR if the placement allows it, and DP over all of these (appendix
D). A generated step gives all bytes: those on rings, those that GPUs send to their ToR, and those that leave ToRs.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64
from emu.model.model import MODELS, Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.faults.waste import machine_of, waste_of
from emu.study.training.estimate import DEFAULT_EFFORT, EstimateRequest, prepare
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.data.presets import STACKS
from launch.papers.infinitehbd.setting import DENSE, options, stack_of, unlimited_device
from launch.papers.infinitehbd.traffic import PLACEMENTS, TP, USED, Cluster, placement
from launch.papers.infinitehbd.waste import BEST, FEWER, NODE, NPUS, on_trace, trace
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OCSTRX, OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import cross_tor
from topologies.infinitehbd.ring_line import build

_GPUS, _TAPER, _LAYERS = 1024, 4, 8
_EFFORT = DEFAULT_EFFORT._replace(error_range=False)  # no row has an error range
_DOMAIN = USED._replace(domain=_GPUS // USED.gpus)


class PlacedStep(NamedTuple):
    """The seconds of a step on a placement, and the shares (0 to 1) of all bytes that GPUs send over ToRs and out of them."""

    step_s: float
    dcn: float  # share that goes to ToRs
    crossing: float  # share that leaves ToRs
    edges: float  # share of the edges of CP rings that leave ToRs


def wiring(cluster: Cluster, taper: int) -> OcstrxPlan:
    """Return the wiring of a cluster whose ToR switches have links to switches above them."""
    dims = 1, cluster.domain // cluster.tor, cluster.tor, cluster.gpus
    return OcstrxPlan("infinitehbd", dims, cluster.k, TP, OcstrxRates(latency=0), taper=taper)


def fabric(of: OcstrxPlan, faulty: I64, groups: I64) -> Topology:
    """Return the topology on which ring i is the i-th group of a placement."""
    return build(of, tuple(faulty.tolist()), groups.size * of.gpus, groups)


def job_plan(of: OcstrxPlan, groups: int) -> Plan:
    """Return the plan of the job: TP within a group, CP over the groups of a ToR, DP over these."""
    dp = groups // of.tor
    batch = DENSE.global_batch // dp * dp
    return Plan(tp=TP, cp=of.tor, dp=dp, global_batch=batch, seq=DENSE.seq, microbatch=1, sharding="zero1", clip=0.0)


def _model() -> Model:
    """Return the dense model of table 2 with few layers: each sends as much, and the step is timed sooner."""
    found = MODELS.find(DENSE.model)
    return replace(found, name=f"{found.name} of {_LAYERS} layers", kinds=found.kinds[:_LAYERS])


@cache
def placed_step(way: str, job: float, faults: float, taper: int = _TAPER, gpus: int = USED.gpus) -> PlacedStep:
    """Return the step of a job on one of the placements that 6.4 compares.

    Args:
        way: The placement, one of `PLACEMENTS`.
        job: The share of GPUs that the job takes.
        faults: The share of nodes that are faulty.
        taper: The bandwidth of a ToR's GPUs over that of its link up.
        gpus: The GPUs of a node.
    """
    of = wiring(_DOMAIN._replace(gpus=gpus, domain=_GPUS // gpus), taper)
    random = np.random.default_rng(0)
    faulty = random.choice(of.nodes, round(faults * of.nodes), replace=False)
    wanted = int(job * _GPUS) // (TP * of.tor) * TP * of.tor
    groups = placement(way, of, faulty, wanted, random)
    plan = job_plan(of, len(groups))
    request = EstimateRequest(_model(), plan, stack_of(plan), tuple(options()["algorithm"]))
    prepared = prepare(request, fabric(of, faulty, groups), unlimited_device(), _EFFORT)
    step, timed = prepared.estimate(unlimited_device(), briefly=True)
    bytes_sent = timed.link_busy * timed.topology.links.bandwidth_Bps * step.step_time_s
    src, kind = timed.topology.links.src, timed.topology.links.dimension
    of_gpus = src < of.npus
    total = bytes_sent[of_gpus].sum()
    up = (kind == 4) & (src > of.npus)
    crossing = float(bytes_sent[up].sum() / total)
    return PlacedStep(step.step_time_s, float(bytes_sent[of_gpus & (kind == 3)].sum() / total), crossing, cross_tor(of, groups))


_JOB = "405B with MHA as in table 2, by TP=32 x CP=2 x DP, on 1,024 GPUs (8 GPUs a node, 2 nodes a ToR, K=3)"


def _step_text(found: PlacedStep) -> str:
    """Return a text on a step and the bytes that it sends."""
    shares = f"{100 * found.crossing:.2f} % of all bytes leave ToRs, {100 * found.dcn:.2f} % are sent over the DCN"
    return f"{found.step_s:.2f} s, {shares}, {100 * found.edges:.0f} % of the edges of CP rings leave ToRs"


def _share(way: str) -> AnswerFunction:
    """Return a function that answers with the share, in per cent, of all bytes of a step that leaves ToRs."""

    def answer(paper: Any, target: Target) -> Answer:
        job, faults = (float(target.given[name]) / 100 for name in ("job", "faults"))
        found = placed_step(way, job, faults)
        return Answer(100 * found.crossing, (_JOB, _step_text(found)))

    return answer


def _step(paper: Any, target: Target) -> Answer:
    """Return a step's seconds by the paper's placement and by the baseline; the former must be less, and send less upwards."""
    job, faults = (float(target.given[name]) / 100 for name in ("job", "faults"))
    of = {way: placed_step(way, job, faults) for way in PLACEMENTS}
    best, worst = of["Optimized"], of["Baseline"]
    wide = [placed_step(way, job, faults, 1).step_s for way in ("Optimized", "Baseline")]
    notes = [f"{way}: {_step_text(found)}" for way, found in of.items()]
    notes += [f"links up of 1/{_TAPER} of the bandwidth of a ToR's GPUs; with all of it {wide[0]:.2f} and {wide[1]:.2f} s"]
    told = f"{best.step_s:.2f} s, and {worst.step_s:.2f} by the baseline"
    return Answer(told, (_JOB, *notes), holds=best.crossing < worst.crossing and best.step_s < worst.step_s)


# A high-bandwidth domain of two dimensions (7): TP has the ring of a node, CP the lines of nodes, on `infinitehbd:lines`.

_SIDE, _FEW_LAYERS, _TOKENS = 8, 2, 2**16
_TWO_AXES = Plan(tp=_SIDE, sp=True, cp=_SIDE, cp_comm="p2p", global_batch=2, seq=_TOKENS, microbatch=1, clip=0.0)
_ALGORITHMS = tuple(f"{name}=bidirectional-ring" for name in ("all_reduce", "all_gather", "reduce_scatter"))
_JOB_OF_TWO = (
    f"405B with MHA as in table 2, of {_FEW_LAYERS} layers, by TP={_SIDE} x CP={_SIDE} with sequences of {_TOKENS} tokens, on "
    f"{_SIDE} nodes of {_SIDE} GPUs; no plan is printed"
)


@cache
def step_s(setting: str) -> float:
    """Return the seconds of a step on nodes of two dimensions with a setting, such as `looped=4`."""
    found = MODELS.find(DENSE.model)
    model = replace(found, name=f"{found.name} of {_FEW_LAYERS} layers", kinds=found.kinds[:_FEW_LAYERS])
    request = EstimateRequest(model, _TWO_AXES, parse_stack("software=megatron", STACKS), _ALGORITHMS)
    word = f"infinitehbd:lines:nodes={_SIDE},line={_SIDE},gpus={_SIDE},latency=0ns,{setting}"
    device = unlimited_device()
    return prepare(request, build_topology(word), device, _EFFORT).estimate(device, briefly=True)[0].step_time_s


def _fixed(paper: Any, target: Target) -> Answer:
    """Return how much longer a step takes on the best split of OCSTrx than where they turn; it must be longer on each split."""
    took = target.given["turn"]
    turned = step_s(f"reconfiguration={took}")
    split = {looped: step_s(f"looped={looped}") for looped in range(1, OCSTRX)}
    best = min(split, key=lambda looped: split[looped])
    told = ", ".join(f"{looped} of {OCSTRX} looped {seconds:.4f} s" for looped, seconds in split.items())
    slower = 100 * (split[best] / turned - 1)
    ours = f"{slower:.1f} % longer on the best split"
    return Answer(ours, (_JOB_OF_TWO, told, f"all turn, in {took}: {turned:.4f} s"), holds=min(split.values()) > turned)


def _tolerance(paper: Any, target: Target) -> Answer:
    """Return the waste of groups of two dimensions over the trace, beside that of rings of as many GPUs, in per cent."""
    group = target.number("group")
    word = f"infinitehbd:lines:nodes={NPUS // NODE},line={group // NODE},gpus={NODE}"
    two = 100 * waste_of(machine_of(build_topology(word), NPUS), group, trace(0)).mean
    rings = {system: 100 * on_trace(system, group).mean for system in (FEWER, BEST)}
    told = ", ".join(f"{system} {wasted:.2f} %" for system, wasted in rings.items())
    return Answer(two, (f"{word}; rings of {group} GPUs: {told}",), holds=two > max(rings.values()))


PLACED: Mapping[str, AnswerFunction] = {
    "oe-base": _share("Baseline"),
    "oe-172": _share("Optimized"),
    "oe-step": _step,
    "7-fixed": _fixed,
    "7-faults": _tolerance,
}
