"""The models, plans, device and topologies of the training steps in the UB-Mesh paper.

The paper prints sizes of models (table 5), that TP and SP have the domains of the highest bandwidth (5.2), and the traffic
of one plan (table 1). The plans here follow from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.model import Model, find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.planning.find import find_best_plan
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.plan_row import PlanRow
from emu.topology.topology import Topology
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.papers.networks import build_once
from launch.papers.paper_steps import PaperSteps

HERE = Path(__file__).parent
NPUS, _BOARD, _TOKENS, _BATCHES, _EP = 8192, 8, 8192, 13, 8
_K, _M = 2**10, 2**20
SHORT, LONG = (8 * _K, 32 * _K), (64 * _K, _M)  # tokens of a sequence in both ranges of figure 17b
DEVICE, STACK = "ascend-910b-like", "software=megatron"
SEARCHED = "tp=8,sp,cp_comm=all_gather,sharding=zero1,microbatch=1"  # words of all plans among which the fastest is searched
_LONGEST = 2**24  # tokens of a sequence that any model takes; table 5 has no limit


MODELS: Mapping[str, str] = {  # models of table 5
    "LLAMA-70B": "llama2-70b",
    "GPT3-175B": "gpt3-175b.toml",
    "Dense-1T": "dense-1t.toml",
    "GPT4-2T": "gpt4-2t.toml",
    "MoE-10T": "moe-10t.toml",
}
UB, A, B, CLOS = "2D-FM", "1D-FM-A", "1D-FM-B", "Clos"
RACKS: Mapping[str, str] = {  # racks of figure 17; all are joined by a 2D full mesh, as in UB-Mesh (6.2)
    UB: "ub-mesh:superpod",
    A: "ub-mesh:superpod-1d-fm-a",
    B: "ub-mesh:superpod-1d-fm-b",
    CLOS: "ub-mesh:superpod-rack-clos",
}
NOTES = (
    f"steps are estimated as `emu estimate --device {DEVICE} --stack {STACK}` does; the paper prints neither the device, nor "
    "the rate of a lane, nor which communication overlaps; the device is the one of the same maker that Emu knows",
    f"plans are the same on all fabrics: TP has a board, and SP is gathered at once (5.2, table 1); a rank has {_TOKENS} "
    f"tokens of a sequence, as 192 MB of 12,288 numbers are (table 1), or more where {NPUS} NPUs are not enough; {_BATCHES} "
    f"microbatches, as 26 transfers of a stage are; EP={_EP}, as 10.5 MB are 7/8 of 192 MB / 16; as few stages as hold "
    "weights, gradients and states of the optimizer (ZeRO-1) in 64 GB; all is recomputed",
    "racks of figure 17 are joined by a 2D full mesh, also those of the Clos (6.2); a rack has as many lanes to other racks as "
    "its NPUs have to its HRS (x64 of an NPU in the Clos)",
    "sequences have 8K, 32K, 64K or 1M tokens; 1M stands for up to 10M, with which most steps would be longer than Emu's clock",
)


def plan_of(name: str, seq: int, npus: int = NPUS) -> Plan:
    """Return the plan of a model for a length of sequences."""
    return _plan(model_of(name), stages(name, npus), seq, npus)


def _plan(model: Model, pp: int, seq: int, npus: int) -> Plan:
    """Return a plan with this number of stages; context parallelism gives each rank 8,192 tokens where NPUs suffice."""
    return split_plan(model, pp, seq, npus, min(max(1, seq // _TOKENS), npus // (_BOARD * pp)))


def split_plan(model: Model, pp: int, seq: int, npus: int, cp: int) -> Plan:
    """Return a plan with this number of stages and of ranks that share a sequence."""
    dp = npus // (_BOARD * pp * cp)
    return Plan(
        tp=_BOARD,
        sp=True,
        cp=cp,
        cp_comm="all_gather",
        pp=pp,
        dp=dp,
        ep=_EP if model.experts else 1,
        sharding="zero1",
        recompute="full",
        global_batch=_BATCHES * dp,
        seq=seq,
        microbatch=1,
    )


@cache
def stages(name: str, npus: int) -> int:
    """Return the least number of stages with which an NPU can hold weights, gradients and states of the optimizer.

    Raises:
        InputError: no number of stages is enough.
    """
    model, most = model_of(name), find_device(DEVICE, "bfloat16").memory_bytes
    for pp in map(int, 2 ** np.arange(10)):
        parts = memory_by_part(model, _plan(model, pp, SHORT[0], npus), parse_stack(STACK, STACKS))
        if sum(parts.values()) - parts["activations"] <= most:
            return pp
    raise InputError(f"repro: no stages of {name} fit an NPU")


@dataclass(frozen=True, slots=True)
class Fabric:
    """A topology, with the factor by which the links out of its racks are widened."""

    word: str
    wider: float = 1.0

    def built(self) -> Topology:
        """Return the built topology."""
        return _wider(self.word, self.wider)


@cache
def _wider(word: str, times: float) -> Topology:
    """Return a topology with wider links out of its racks.

    Args:
        word: The name and the settings of the topology.
        times: The factor on the bandwidth of each link out of a rack.
    """
    topology, inside = build_once(word), ("X", "Y")
    if times == 1:
        return topology
    within = np.isin(topology.links.dimension, [i for i, name in enumerate(topology.tiers) if name.startswith(inside)])
    rates = topology.links.bandwidth_Bps * np.where(within, 1.0, times)
    return replace(topology, links=replace(topology.links, bandwidth_Bps=rates))


class UBMeshSteps(PaperSteps):
    """The estimated steps of the models in table 5."""

    def of(self, name: str, seq: int, fabric: Fabric) -> PlanRow:
        """Return one step on all NPUs of a SuperPod.

        Raises:
            InputError: as `estimate`.
        """
        return self.by(name, plan_of(name, seq), fabric)

    def by(self, name: str, plan: Plan, fabric: Fabric) -> PlanRow:
        """Return one step with a plan.

        Raises:
            InputError: as `estimate`.
        """
        return self.estimate(model_of(name), plan, repr(fabric), fabric.built)

    def fastest(self, name: str, npus: int, batch: int, seq: int, fabric: Fabric) -> PlanRow:
        """Return the step of the fastest plan that `emu plan` finds with the words of `SEARCHED`, in the memory of the device.

        Args:
            name: The name of the model.
            npus: The number of NPUs.
            batch: The sequences of a step.
            seq: The tokens of a sequence.
            fabric: The topology.

        Raises:
            InputError: as `find_best_plan`.
        """
        request = PlanRequest(model_of(name), npus, batch, seq, parse_stack(STACK, STACKS), self.algorithms, SEARCHED)
        return find_best_plan(request, fabric.built(), find_device(DEVICE, "bfloat16"), self.kept).row


@cache
def model_of(name: str) -> Model:
    """Return a model of table 5, which takes sequences of any length."""
    path = HERE / MODELS[name]
    return replace(find_model(str(path) if path.suffix == ".toml" else MODELS[name]), max_seq=_LONGEST)
