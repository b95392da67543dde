"""The software that a job runs on, as far as it changes time and traffic and not results: a value apart from the plan.

Sources: PyTorch's own pieces, as Emu executes them; Megatron-LM, megatron/training/arguments.py and megatron/core, for its
defaults: what overlaps with computation there, fused accumulation of gradients, attention by cuDNN (Transformer Engine).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from emu.collective.libraries import LIBRARIES
from emu.dtypes import FP8, item_bytes
from emu.errors import must_be
from emu.registry import unknown
from emu.trace.device.attention import CUDNN, FA2, FA3

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

# What each setting may be by software; the first is its default. PyTorch's pieces are as they are.
SETTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "pytorch": {
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
    "megatron": {
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
}
SOFTWARE = tuple(SETTINGS)
COUNTS = ("sms", "deferred")  # settings that are whole numbers; 0: none
# Kinds of operators that the software fuses unless it is told not to; attention has a word of its own.
UNFUSED_KINDS: Mapping[str, tuple[str, ...]] = {"pytorch": (), "megatron": ("activation", "loss", "router", "permutation")}


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype of each role that a tensor plays; names as torch has them."""

    weight: str = "bfloat16"
    activation: str = "bfloat16"
    gradient: str = "float32"
    master: str = "float32"  # a copy of the weights that the optimizer changes; where it is of the weights' dtype there is none
    moment: str = "float32"  # each of AdamW's two
    dispatch: str = ""  # rows on their way to experts, and the gradients of what experts gave; "": as activations

    def __post_init__(self) -> None:
        for field in fields(self):
            item_bytes(getattr(self, field.name) or self.activation)

    @property
    def has_master(self) -> bool:
        """True if the optimizer keeps weights of its own."""
        return self.master != self.weight

    @property
    def kept_bytes(self) -> int:
        """The optimizer's bytes for a parameter."""
        return 2 * item_bytes(self.moment) + (item_bytes(self.master) if self.has_master else 0)


EXECUTED = Precision("float32", "float32", "float32", "float32", "float32")  # what Emu's own ranks train in


@dataclass(frozen=True, slots=True)
class Stack:
    """The settings of one software; a setting that is left out has the software's default.

    `exposed` communication is awaited before anything else is computed; `overlapped` communication runs beside the computation
    that reads or makes its data.
    """

    software: str = "pytorch"
    tp: str = ""
    cp: str = ""
    ep: str = ""
    dp: str = ""
    pp: str = ""
    messages: str = ""  # between stages, without sp: each rank of tp sends all, or (scattered) its share
    accumulation: str = ""  # of gradients, by the product that makes them (fused), or after it
    attention: str = ""  # by which kernel; by unfused ones scores are written, by any other they never are
    compile: str = ""  # what torch.compile fuses: nothing, or layers, each by itself; head and loss are not compiled
    optimizer: str = ""  # AdamW as one kernel (fused), or as one for each of its operations (foreach)
    fp8: str = ""  # of layers, which products are in FP8 with one scale for so much; `delayed`: for a tensor, from steps before
    fp8_gather: str = ""  # whether the weights of these products are gathered in FP8 over the ranks that share their states
    sms: int = 0  # cores that a collective which adds takes from products beside it; 0: as the device says
    deferred: int = 0  # microbatches, the first, whose gradient of the head's weight is worked out after the pipeline
    unfused: tuple[str, ...] = ()  # kinds of operators that run by several kernels, where the software may fuse them
    launch_s: float = 0.0  # of each collective and message, on both its ends
    alpha_s: float = 0.0  # of each message, besides the latencies of its links
    adding_s: float = 0.0  # ... and of each to or from a switch that adds, besides
    library: str = ""  # whose choice of algorithms serves unless another is named, and which lets switches add; "": none
    bandwidth: tuple[float, ...] = ()  # of links, the share that data reach, tier by tier, the last for the rest; (): all
    precision: Precision = Precision()

    def __post_init__(self) -> None:
        if self.software not in SETTINGS:
            raise unknown("software of a stack", self.software, SOFTWARE)
        for name, known in SETTINGS[self.software].items():
            value = getattr(self, name) or known[0]
            if value not in known:
                raise unknown(f"{name} of a stack with software={self.software}", value, known)
            object.__setattr__(self, name, value)
        if self.library:
            LIBRARIES.find(self.library)
        self._check_kinds()
        self._check_gather()
        if self.software == "pytorch" and self.precision.dispatch:
            mend = "its rows travel as they are; or take software=megatron"
            raise must_be("stack", "dispatch", "left out with software=pytorch", self.precision.dispatch, mend)
        for share in self.bandwidth:
            if not 0 < share <= 1:
                raise must_be("stack", "bandwidth", "shares above 0 and at most 1", share)
        for name in ("launch_s", "alpha_s", "adding_s", *COUNTS):
            if not getattr(self, name) >= 0:
                what = "0 or more" if name in COUNTS else "0 or more seconds"
                raise must_be("stack", name, what, getattr(self, name))

    def _check_gather(self) -> None:
        if self.fp8_gather == YES and self.fp8 in (NOTHING, ROW):
            of = "tensor" if self.software == "pytorch" else "delayed, tensor or block"
            raise must_be("stack", "fp8_gather", f"no with fp8={self.fp8}", YES, f"weights are gathered in FP8 with fp8={of}")

    def _check_kinds(self) -> None:
        for kind in self.unfused:
            if kind not in UNFUSED_KINDS[self.software]:
                raise unknown(f"unfused of a stack with software={self.software}", kind, UNFUSED_KINDS[self.software])

    @property
    def is_narrow(self) -> bool:
        """True if activations have fewer bytes than float32; PyTorch then casts to float32 in norms and in the loss."""
        return self.software == "pytorch" and item_bytes(self.precision.activation) < item_bytes("float32")

    @property
    def gathered(self) -> str:
        """The dtype in which weights that are sharded over ranks are gathered.

        Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_api.py, the `param_dtype` of a `MixedPrecisionPolicy`.
        """
        return self.precision.activation if self.software == "pytorch" else self.precision.weight

    @property
    def narrow_gather(self) -> str:
        """The dtype in which the weights of products in FP8 are gathered; "": as all others."""
        return FP8 if self.fp8_gather == YES else ""

    @property
    def overlaps_gradients(self) -> bool:
        """True if gradients are reduced, and weights gathered, beside computation."""
        return self.dp != EXPOSED

    def boundary_share(self, tp: int, *, sp: bool) -> int:
        """Return the number of parts into which the data between two stages are cut; each rank of tp sends one part."""
        return tp if sp or self.messages == SCATTERED else 1
