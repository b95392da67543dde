"""The software of a stack as one value: the rules by which kernels, gradients, memory and the search of plans differ.

A file beside this one has each value. All other code asks a value for a rule, and compares no names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emu.errors import must_be

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
    """The bytes that casts to FP8 move beside a product, for each element of what is cast.

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
    """The rules of one software; software of one name is equal, in every process. A rule that is left out does not hold."""

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
