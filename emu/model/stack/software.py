"""The software of a stack as one value: its rules for kernels, gradients, memory and the search of plans.

Each value is at the end. All other code asks a value for a rule, and compares no names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emu.errors import must_be
from emu.model.operator import OPS
from emu.model.pipeline_order import ORDERS
from emu.trace.device.attention_rate import CUDNN, FA2, FA3

EXPOSED, OVERLAPPED = "exposed", "overlapped"
BACKWARD = "backward"  # beside a product in the backward only
INTERLEAVED = "interleaved"  # in that order of a pipeline only
CHUNKED = "chunked"  # of each chunk of a pipeline at once, beside what others compute
FUSED, UNFUSED = "fused", "unfused"
WHOLE, SCATTERED = "whole", "scattered"
NOTHING, LAYERS = "nothing", "layers"
DELAYED, TENSOR, ROW, BLOCK = "delayed", "tensor", "row", "block"  # what one scale of FP8 is of, or when it is known
NO, YES = "no", "yes"
FOREACH = "foreach"
# The settings of a stack that every software has values for, each explained at the field of `Stack` with its name.
SETTINGS = ("tp", "cp", "ep", "dp", "pp", "messages", "accumulation", "attention", "compile", "optimizer", "fp8", "fp8_gather")


class Casts(NamedTuple):
    """The bytes that casts to FP8 move for each element that is cast.

    A cast reads two bytes an element and writes one. With one scale for a tensor the largest element must be known before, by a
    pass of its own that reads two bytes; `delayed` takes the scale of steps before and needs no such pass; with one scale for a
    block or a row the kernel that casts finds it. Hopper's tensor cores multiply FP8 along rows only, so that the gradients of
    inputs and weights need turned copies. A kernel may write both, unless one is gathered over ranks in between.
    """

    read: float  # of what the product reads, before its forward
    normed: float  # ... where a norm comes before
    turned: float  # of what the product reads, before the gradient of its weight: read from FP8 and written turned
    gradient: float  # of the gradient that comes in
    gradient_turned: float  # of the same, turned
    together: float  # less, of each turned copy that the kernel of the cast writes as well
    weight: float  # of the weight, before each forward
    weight_turned: float  # of the weight, before each gradient of what the product reads


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Software:
    """The rules of one training software; a rule that is left out does not hold. Values with one name are equal."""

    name: str  # in the words of a stack
    title: str  # in sentences
    settings: Mapping[str, tuple[str, ...]]  # the values that each of `SETTINGS` may have; the first is its default
    unfusable: tuple[str, ...]  # kinds of operators, fused unless a stack says otherwise; attention has a word of its own
    casts: Mapping[str, Casts]  # by the value of the setting `fp8`

    orders: tuple[str, ...]  # of pipelines, that it has
    shardings: tuple[str, ...]  # of states, that it has
    recompute: tuple[str, ...]  # ways of recomputation, of which Emu knows what each keeps
    keeper: str  # what keeps activations for the backward, as a subject with its verb
    shards_over_part: bool = False  # states may be sharded over a part of dp (HSDP)
    pads_vocabulary: bool = False  # a vocabulary that tp does not divide is filled up
    is_executed: bool = False  # real ranks of Emu run it, so that they hold its steps, and a plan must be one that they can run

    is_eager: bool = False  # each operator runs as a kernel of its own, whose constants and masks are tensors that live
    groups_experts: bool = False  # one grouped kernel multiplies the rows of all experts; in FP8 it has none
    casts_dispatch: bool = False  # rows may travel to experts in a dtype of their own
    routes_whole_sequences: bool = False  # where no token travels a router sees whole sequences, not the rank's tokens alone
    cuts_latents: bool = False  # narrow products of latent attention have a rank's own tokens, and latents are gathered
    gathers_cast: bool = False  # weights that are sharded are cast to the dtype of activations before they are gathered

    adds_gradients: bool = False  # gradients are added to a buffer that always lives, and are reduced from there
    keeps_whole_logits: bool = False  # each rank of tp has all logits, as the loss is not computed on parts of them
    keeps_dtensors: bool = False  # tp keeps DTensors: a head's input twice, the gradient of a whole table, and sums for later
    keeps_messages: bool = False  # stages keep what they send, and have a buffer for each message that they will receive
    packs_ring: bool = False  # a ring of cp packs keys, values and their gradients, which live in each form
    updates_tensors: bool = False  # the optimizer shares out whole parameters, and counts its steps for each of them

    def __post_init__(self) -> None:
        if wrong := set(self.settings) ^ set(SETTINGS):
            raise must_be("software", "settings", "exactly those of emu.model.stack.software.SETTINGS", sorted(wrong))
        if wrong := set(self.settings["fp8"]) - {NOTHING, *self.casts}:
            raise must_be("software", "casts", "the casts of each value of the setting fp8", sorted(wrong))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Software) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return repr(self.name)


# PyTorch's own pieces, as Emu executes them: DTensor, FSDP2, DDP, its pipelines, eager kernels. Sources: PyTorch 2.13, whose
# rules real ranks of Emu show; for casts to FP8 torchao at eab345c (December 2024), torchao/float8,
# {float8_linear,float8_ops}.py.
PYTORCH = Software(
    name="pytorch",
    title="PyTorch",
    settings={
        "tp": (EXPOSED,),
        "cp": (OVERLAPPED,),
        "ep": (EXPOSED,),
        "dp": (OVERLAPPED,),
        "pp": (OVERLAPPED,),
        "messages": (WHOLE,),
        "accumulation": (UNFUSED,),
        "attention": (FA2, CUDNN, FA3),
        "compile": (NOTHING, LAYERS),
        "optimizer": (FUSED, FOREACH),
        "fp8": (NOTHING, TENSOR, ROW),
        "fp8_gather": (NO, YES),
    },
    unfusable=(),
    casts={
        TENSOR: Casts(5, 5, 2, 5, 2, 0, 5, 2),
        ROW: Casts(3, 3, 5, 3, 5, 0, 3, 5),  # along tokens the scales are found by a pass of their own
    },
    orders=tuple(ORDERS),
    shardings=("ddp", "zero1", "fsdp"),
    recompute=("none", "selective", "full", OPS),
    keeper="eager PyTorch keeps",
    shards_over_part=True,
    is_executed=True,
    is_eager=True,
    groups_experts=True,  # torch.nn.functional.grouped_mm; torchao converts linear layers alone
    routes_whole_sequences=True,
    gathers_cast=True,  # torch/distributed/fsdp/_fully_shard/_fsdp_api.py, the `param_dtype` of a `MixedPrecisionPolicy`
    keeps_whole_logits=True,
    keeps_dtensors=True,
    keeps_messages=True,  # torch/distributed/pipelining/stage.py
    packs_ring=True,  # torch/distributed/tensor/experimental/_context_parallel/_attention.py
    updates_tensors=True,  # torch/distributed/optim/zero_redundancy_optimizer.py
)

_SCALED = 4 / 128  # bytes of a scale, of 128 elements
# Fused kernels, a buffer of gradients that always lives, requests that overlap as the settings say. Sources: Megatron-LM,
# megatron/training/arguments.py and megatron/core, for its defaults: what overlaps with computation there, fused accumulation
# of gradients, attention by cuDNN (Transformer Engine). Logits stay cut (tensor_parallel/cross_entropy.py), outputs are freed
# once they are sent (pipeline_parallel/schedules.py). Transformer Engine v1.13,
# transformer_engine/pytorch/module/{linear,layernorm_linear,base}.py (delayed; weights are cast once a step, and a norm writes
# FP8 itself); v2.8, pytorch/tensor/float8_blockwise_tensor.py (block), for casts to FP8.
MEGATRON = Software(
    name="megatron",
    title="Megatron-LM",
    settings={
        "tp": (BACKWARD, EXPOSED, OVERLAPPED, CHUNKED),
        "cp": (OVERLAPPED, EXPOSED),
        "ep": (EXPOSED, OVERLAPPED),
        "dp": (EXPOSED, OVERLAPPED, CHUNKED),
        "pp": (INTERLEAVED, EXPOSED, OVERLAPPED),
        "messages": (WHOLE, SCATTERED),
        "accumulation": (FUSED, UNFUSED),
        "attention": (CUDNN, FA2, FA3, UNFUSED),
        "compile": (NOTHING,),
        "optimizer": (FUSED,),
        "fp8": (NOTHING, DELAYED, TENSOR, BLOCK),
        "fp8_gather": (NO, YES),
    },
    unfusable=("activation", "loss", "router", "permutation"),
    casts={
        DELAYED: Casts(3, 0, 2, 3, 2, 1, 0, 0),
        TENSOR: Casts(5, 5, 2, 5, 2, 1, 0, 0),
        BLOCK: Casts(3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 2, 0, 0),
    },
    orders=("1f1b", "interleaved"),
    shardings=("ddp", "zero1"),
    recompute=("none", "selective", "full"),
    keeper="fused kernels keep",
    pads_vocabulary=True,  # megatron/training/vocab_utils.py
    casts_dispatch=True,
    cuts_latents=True,  # megatron/core/transformer/multi_latent_attention.py
    adds_gradients=True,  # megatron/core/distributed/param_and_grad_buffer.py, in the dtype of gradients
)
