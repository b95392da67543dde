"""Training steps with five axes on rails that are divided among them (5, A.3) or shared in turns (5.2).

The order of axes is the paper's, [T, C, E, D, P]: expert groups stand outside those of CP, where Megatron-LM's are inside.
Letters: T, C, E, D and P ranks of tensor, context, expert, data (of experts) and pipeline parallelism.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from emu.arrays import I64
from emu.collective.choice import Choice
from emu.model.generate.generate import generate
from emu.model.generate.item import Ask
from emu.model.generate.tape import Tape
from emu.model.model import describe_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.training.step.step import TimedTrace, time_trace
from emu.topology.catalogue import build_topology
from emu.trace.regrouping import regrouped
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Group, Trace
from launch.data.devices import find_device
from launch.data.presets import STACKS

_NAMES = ("pp", "dp", "ep", "cp", "tp")  # the slowest first


@dataclass(frozen=True)
class Shape:
    """The sizes of five axes of parallelism."""

    tp: int = 4
    cp: int = 3
    ep: int = 3
    dp: int = 2
    pp: int = 2

    def rows(self, *axes: str) -> I64:
        """Return [groups, members] the ranks that differ only on the given axes."""
        sizes = [getattr(self, name) for name in _NAMES]
        ranks = np.arange(int(np.prod(sizes))).reshape(sizes)
        own = [_NAMES.index(axis) for axis in sorted(axes, key=_NAMES.index)]
        members = int(np.prod([sizes[i] for i in own]))
        return np.moveaxis(ranks, own, range(-len(own), 0)).reshape(-1, members)


@dataclass(frozen=True)
class MoeStep:
    """A step of a model with experts: its sizes and its batch."""

    shape: Shape
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    experts: int
    seq: int
    passes: int  # microbatches of a pipeline, of one sequence each
    vocab: int = 32000

    @property
    def plan(self) -> Plan:
        """The plan; its dp has the ranks of expert parallelism, too."""
        of, copies = self.shape, self.shape.ep * self.shape.dp
        batch = self.passes * copies
        return Plan(
            tp=of.tp, sp=True, cp=of.cp, ep=of.ep, dp=copies, pp=of.pp, global_batch=batch, seq=self.seq, microbatch=1, clip=0.0
        )  # fmt: skip

    def trace(self) -> Trace:
        """Return the generated step with expert groups outside those of CP, as the paper orders axes."""
        sizes = {"layers": self.layers, "hidden": self.hidden, "heads": self.heads, "kv_heads": self.kv_heads, "ffn": self.ffn}
        table = {
            "architecture": "mixtral",
            **sizes,
            "vocab": self.vocab,
            "max_seq": self.seq,
            "experts": self.experts,
            "top_k": 2,
        }
        model = describe_model({**table, "source": "RailX, A.3 and A.4"}, "railx-moe")
        made, rows = generate(model, self.plan, parse_stack("software=megatron", STACKS)), self.shape.rows
        return regrouped(made, {"ep": rows("ep"), "edp": rows("dp", "cp"), "etp+ep": rows("ep", "tp")})


_SMALL = MoeStep(Shape(), layers=2, hidden=1024, ffn=3584, heads=32, kv_heads=8, experts=3, seq=6 * 4096, passes=4)
_CHOICE = Choice.parse(
    (
        "all_to_all=at-once@4",
        "all_gather=direct",
        "reduce_scatter=direct",
        "cp+dp.all_reduce=hierarchical-ring@4:2x3x3",  # level by level, so that rails that turn are in one state in a round
        "edp.all_reduce=hierarchical-ring@4:2x3",
    )
)


def timed(trace: Trace, word: str, choice: Choice = _CHOICE) -> TimedTrace:
    """Return a trace timed on a topology, with the paper's chips taken as H100."""
    return time_trace(TraceLayout(trace, choice, build_topology(word), find_device("h100", "bfloat16"), "bfloat16"))


@cache
def _small_trace() -> Trace:
    """Return the trace of a small step, whose axes send more bytes in the order EP > CP > DP > PP."""
    return _SMALL.trace()


@cache
def small_step(word: str) -> tuple[float, Mapping[str, float]]:
    """Return the seconds of the small step on a topology, and the seconds that each axis is waited for."""
    report = timed(_small_trace(), word).report
    return report.step_time_s, report.figures()["exposed_comm_by_axis_s"]


def sent() -> Mapping[str, int]:
    """Return the bytes that a rank of the first stage sends in the small step, for each of the axes that rails carry."""
    trace, found = _small_trace(), dict[str, int]()
    events, axes = trace.events_of(0), {"ep": "ep", "cp": "cp", "cp+dp": "dp", "edp": "dp", "pp": "pp"}
    for row in np.flatnonzero((events.step > 0) & np.isin(events.kind, (1, 2))).tolist():
        axis = axes.get(trace.groups[trace.group_of[0][events.group[row]]].axis, "")
        found[axis] = found.get(axis, 0) + int(events.bytes[row])
    return {axis: found[axis] for axis in ("ep", "cp", "dp", "pp")}


FINE, COARSE = "m=2,n=4,bandwidth=25GB/s", "m=2,n=2,bandwidth=50GB/s"  # ports of a chip, of one bandwidth in all
PAIRINGS = (("ep", "pp", "cp", "dp"), ("ep", "cp", "dp", "pp"), ("ep", "dp", "cp", "pp"))  # two along X, two along Y


def _rail_splits(ports: str) -> Iterable[tuple[int, int, int]]:
    """Yield the splits of the rails of X and of Y among the two axes that share each of them.

    Args:
        ports: The ports of a chip, FINE or COARSE; these decide how many rails there are.

    Yields:
        The number of rails of X, equal to that of Y; the rails that the first axis of X has; the rails that the first axis of Y
        has. The second axis has the others.
    """
    return product((8,), (4, 6), (2, 4, 6)) if ports == FINE else product((4,), (2,), (1, 2, 3))


def static_word(ports: str, pairing: tuple[str, ...], split: tuple[int, int, int]) -> str:
    """Return the topology, as text, whose rails are split in a fixed way.

    Args:
        ports: The ports of a chip, FINE or COARSE.
        pairing: The four axes: two along X, two along Y.
        split: An entry of `_rail_splits`.
    """
    a, b, c, d = (f"{axis}{getattr(_SMALL.shape, axis)}" for axis in pairing)
    rails, x, y = split
    return f"railx:mapped:{ports},x={a}@{x}+{b}@{rails - x},y={c}@{y}+{d}@{rails - y}"


def best_static(ports: str, pairing: tuple[str, ...]) -> tuple[float, str]:
    """Return the least seconds of the small step over all splits of rails, and the topology that reaches it."""
    words = [static_word(ports, pairing, split) for split in _rail_splits(ports)]
    return min((small_step(word)[0], word) for word in words)


def switched_word(turning: str, rails_of_dp: int) -> str:
    """Return the topology text in which CP and EP use all rails of X in turns, and DP and PP divide those of Y."""
    return f"railx:mapped:{FINE},x=cp3~ep3@8,y=dp2@{rails_of_dp}+pp2@{8 - rails_of_dp},turning={turning}"


def best_switched(turning: str) -> tuple[float, str]:
    """Return the least seconds of the small step over all splits of Y, and the topology that reaches it."""
    words = [switched_word(turning, rails) for rails in (2, 4, 6)]
    return min((small_step(word)[0], word) for word in words)


def request_s(word: str, shape: Shape, axes: tuple[str, ...], asked: Ask, served: str) -> float:
    """Return the seconds of one request that all groups of the given axes make at one time.

    Args:
        word: The topology.
        shape: The ranks of each axis.
        axes: The axes on which the ranks of a group differ.
        asked: The request; its axis is any name.
        served: The algorithm.
    """
    tape, rows = Tape("bfloat16"), shape.rows(*axes)
    tape.join(tape.ask(asked))
    number = np.empty(rows.size, np.int64)
    number[rows] = np.arange(len(rows))[:, None]
    groups = tuple(Group(asked.axis, tuple(row)) for row in rows.tolist())
    of = tuple((each,) for each in number.tolist())
    trace = Trace((tape.events(),), np.zeros(rows.size, np.int32), groups, of, np.zeros((1, 4), np.int64))
    return timed(trace, word, Choice.parse((f"{asked.operation}={served}",))).report.step_time_s


_LLAMA = MoeStep(
    Shape(cp=2, ep=2), layers=4, hidden=8192, ffn=28672, heads=64, kv_heads=8, experts=8, seq=8192, passes=2, vocab=128256
)
_LARGER = replace(_LLAMA, hidden=16384, ffn=53248, heads=128)
_CLUSTER = "servers:nodes=16,gpus=4,nvlink=150GB/s,nic=25GB/s"  # A.4: four GH200 on NVLink, 200 Gb/s a chip


@cache
def gap_s(larger: bool = False, seq: int = 8192) -> float:
    """Return the seconds from the last message of CP to the first all_to_all in the forward pass of a layer, on A.4's cluster.

    Args:
        larger: Whether the model has the sizes of Llama 3 405B, not those of 70B.
        seq: The tokens of a sequence, which the paper does not print.
    """
    trace = replace(_LARGER if larger else _LLAMA, seq=seq).trace()
    found, events = timed(trace, _CLUSTER, Choice()), trace.events_of(0)
    axes = [trace.groups[trace.group_of[0][of]].axis if of >= 0 else "" for of in events.group.tolist()]
    first, replayed = int(found.replayed.first_event[0]), found.replayed
    since = -1.0
    for row in np.flatnonzero(events.step > 0).tolist():
        if axes[row] == "cp":
            since = float(found.timeline.end_fs[replayed.ends[first + row]])
        elif axes[row] == "ep":
            return (float(found.timeline.start_fs[replayed.begins[first + row]]) - since) / 1e15
    raise AssertionError("a step with CP and EP has both")
