"""Steps drawn at random, so small that the graph of all their ranks can be timed beside the composed one.

Tests of the parts of a composed step draw the plain ones; the benchmark draws the wide ones, on fabrics of all families.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from emu.errors import InputError
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.training.estimate import EstimateRequest

_HERE = Path("benchmarks/composed")
MOST_RANKS, MOST_PASSES = 32, 2**7  # ranks of a step, and passes of all its ranks through a layer of its stage, by 8
PLAIN_FABRICS = (
    "switch:n=32,bandwidth=50GB/s,latency=500ns", "servers:nodes=4", "ub-mesh:rack",
    "torus:dims=4x8,bandwidth=25GB/s,latency=500ns", "fat-tree:radix=8",
)  # fmt: skip
FABRICS = (
    *PLAIN_FABRICS,
    "big-switch:n=32", "full-mesh:n=32,bandwidth=10GB/s,latency=500ns", "ring:n=32,bandwidth=50GB/s,latency=500ns",
    "torus:dims=2x4x4,bandwidth=50GB/s,latency=500ns", "hypercube:d=5,bandwidth=25GB/s,latency=500ns",
    "fat-tree:radix=8,taper=3,bandwidth=50GB/s", "fat-tree:radix=9,taper=2", "fat-tree:pgft:down=8x4,up=1x4",
    "fat-tree:pgft:down=8x8,up=1x4,parallel=1x2", "dragonfly:p=2,a=4,h=2", "hammingmesh:boards=4x4,side=2",
    "rail-only:dims=8x8", "rail-optimised:radix=8", "servers:nodes=8,gpus=4", "dgx-h100:superpod:servers=4", "nvl:36x2",
    "hpn:dims=2x2x2x4,aggs=2,up=2", "hpn:pod:dims=2x2x8,aggs=2", "hpn:segment:dims=4x8", "hpn:clos:dims=2x4x4,aggs=2",
    "hpn:dcn-plus:dims=2x2x2x8,aggs=2,parallel=1,up=2", "hpn:rail-only:dims=2x4x4,aggs=2", "ub-mesh:rack-1d-fm-a",
    "ub-mesh:rack-clos", "ub-mesh:pod:dims=2x2x4x4", "ub-mesh:superpod:dims=2x2x2x2x4", "ub-mesh:clos:dims=4x2x4",
    "railx:torus:m=2,n=2,nodes=4x4", "railx:hyperx:m=2,n=2", "railx:dragonfly:m=2,n=1,groups=7", "sipac:r=6,L=2",
    "flex-sipac:r=4,L=3,jobs=64", "tpuv4:cubes=1x1x1", "infinitehbd:dims=1x16x2x4,tp=32",
)  # fmt: skip
_SPLIT = ("order=zero-bubble,vp=2", "order=zbv,vp=2", "order=dualpipev,vp=2")
ORDERS = {
    "pytorch": ("order=gpipe", "order=1f1b", "order=interleaved,vp=2", *_SPLIT),
    "megatron": ("order=1f1b", "order=interleaved,vp=2"),
}
PLAIN_STACKS = ("software=pytorch", "software=megatron", "software=megatron,dp=overlapped")
_OVERLAPS: Mapping[str, Sequence[str]] = {
    "tp": ("backward", "exposed", "overlapped"),
    "cp": ("overlapped", "exposed"),
    "ep": ("exposed", "overlapped"),
    "dp": ("exposed", "overlapped", "overlapped", "chunked", "chunked"),
    "pp": ("interleaved", "exposed", "overlapped"),
}
_SIZES = {"tp": (1, 1, 2, 4, 8), "cp": (1, 1, 2, 4), "dp": (1, 2, 3, 4, 6, 8), "pp": (1, 1, 2, 4)}
_RINGS = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step in the words of `emu estimate`."""

    topology: str
    words: str  # of its plan
    model: str
    stack: str
    batch: int
    seq: int = 256
    axes: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("auto",)

    @property
    def plan(self) -> Plan:
        """Read from its words."""
        return parse_plan(self.words, global_batch=self.batch, seq=self.seq)

    @property
    def request(self) -> EstimateRequest:
        """Return the request for an estimate of this step."""
        return EstimateRequest(self.model, self.plan, parse_stack(self.stack), self.algorithms, self.axes)

    def __str__(self) -> str:
        axes, stack = f" --axes {','.join(self.axes)}" * bool(self.axes), f"--stack {self.stack}"
        named = "".join(f" --algorithm {word}" for word in self.algorithms if word != "auto")
        batch = f"--global-batch {self.batch} --seq {self.seq}"
        return f"emu estimate --model {self.model} --plan {self.words} {stack} {batch} --topology {self.topology}{axes}{named}"


def plain(seed: int) -> Drawn:
    """A plan of up to 32 ranks on one of five fabrics: any axes, sharding and order; little that overlaps."""
    rng = random.Random(seed)
    sizes = {axis: rng.choice((1, 1, 2, 4)) for axis in ("tp", "cp", "dp", "pp")}
    experts = rng.random() < 0.3 and sizes["cp"] * sizes["dp"] % 2 == 0
    if not 2 <= prod(sizes.values()) <= MOST_RANKS:
        return plain(seed + 10**6)
    stack = rng.choice(PLAIN_STACKS)
    words = _words(rng, sizes, stack, experts)
    model = "mixtral-tiny" if experts else rng.choice(("llama-tiny", "llama3-8b"))
    return Drawn(rng.choice(PLAIN_FABRICS), words, model, stack, 2 * sizes["dp"] * sizes["pp"])


def _words(rng: random.Random, sizes: Mapping[str, int], stack: str, experts: bool) -> str:
    words = [f"{axis}={size}" for axis, size in sizes.items()] + [f"clip={rng.choice((0, 1))}"] + ["ep=2"] * experts
    words += ["sp"] * (sizes["tp"] > 1 and rng.random() < 0.5)
    own = stack.startswith("software=pytorch")
    order = rng.choice(ORDERS["pytorch" if own else "megatron"]) if sizes["pp"] > 1 else ""
    shared = ("ddp", "zero1") if order in _SPLIT else ("ddp", "zero1", "fsdp")  # FSDP2 sees no backward that is split
    words += [f"sharding={rng.choice(shared)}"] if sizes["dp"] > 1 and own else []
    return ",".join([*words, *([order] if order else [])])


def wide(seed: int) -> Drawn:
    """A plan of up to 32 ranks on any fabric: any stack, axes in any order, any batch, sequence and choice of algorithms."""
    rng = random.Random(seed)
    sizes = {axis: rng.choice(of) for axis, of in _SIZES.items()}
    if not 4 <= prod(sizes.values()) <= MOST_RANKS:
        return wide(seed + 10**6)
    own, experts = rng.random() < 0.3, rng.random() < 0.25 and sizes["cp"] * sizes["dp"] % 2 == 0
    overlaps = ",".join(f"{axis}={rng.choice(of)}" for axis, of in _OVERLAPS.items())
    stack = "software=pytorch" if own else f"software=megatron,{overlaps}"
    words = _words(rng, sizes, stack, experts)
    words += rng.choice(("", ",cp_comm=all_gather")) * (sizes["cp"] > 1) + rng.choice(("", "", ",recompute=full"))
    words += rng.choice(("", ",sharding=zero1")) * (not own and sizes["dp"] > 1)
    batch, seq = sizes["dp"] * sizes["pp"] * rng.choice((1, 2, 4)), rng.choice((512, 2048, 4096, 8192))
    axes = [axis for axis, size in sizes.items() if size > 1]
    rng.shuffle(axes)
    model = str(_HERE / ("experts.toml" if experts else "dense.toml"))
    algorithms = rng.choice((("auto",), ("auto",), _RINGS))
    found = Drawn(rng.choice(FABRICS), words, model, stack, batch, seq, tuple(axes), algorithms)
    return found if _runs(found) else wide(seed + 10**6)


def _runs(drawn: Drawn) -> bool:
    """Return whether Emu accepts the plan, and the graph of all its ranks is small enough to be timed whole."""
    try:
        plan, model, stack = drawn.plan, find_model(drawn.model), parse_stack(drawn.stack)
        check_fits_model(plan, model)
        check_runs(plan, model, stack)
    except InputError:
        return False
    return plan.world * plan.passes // plan.pp <= MOST_PASSES


def several(count: int, seed: int) -> Iterator[Drawn]:
    """So many wide ones."""
    return (wide(10**7 * seed + i) for i in range(count))
