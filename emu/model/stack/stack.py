"""The stack: the software of a job and its settings, which change time and traffic but never results.

A stack is also a text, such as `software=megatron,attention=unfused,alpha=900ns`, which is parsed and printed here. Further
functions give the kernels by which a stack runs an operator, which of them are in FP8, and the bytes kept for the backward.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from emu.collective.libraries import LIBRARIES
from emu.dtypes import FP8, item_bytes
from emu.errors import InputError, either, must_be
from emu.model.operator import ATTENTION, FORWARD, PRODUCT, RESIDUAL, Amount, ModelOperator, Passes
from emu.model.plan.plan import Plan
from emu.model.stack.software import EXPOSED, LAYERS, MEGATRON, NOTHING, PYTORCH, ROW, SCATTERED, UNFUSED, YES, Casts, Software
from emu.registry import unknown
from emu.trace.kernel_shape import MOVES, Kernel, Shape
from emu.units import format_time, parse_time, seconds

SOFTWARE: Mapping[str, Software] = {each.name: each for each in (PYTORCH, MEGATRON)}
COUNTS = ("sms", "deferred")  # settings that are whole numbers; 0: none


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtypes of a training step, by the role of a tensor (weight, activation, gradient and more); names as in torch."""

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
        """True if the optimizer keeps a copy of the weights in higher precision."""
        return self.master != self.weight

    @property
    def kept_bytes(self) -> int:
        """The bytes that the optimizer keeps for each parameter."""
        return 2 * item_bytes(self.moment) + (item_bytes(self.master) if self.has_master else 0)


@dataclass(frozen=True, slots=True)
class Stack:
    """The settings of one software; a setting that is left out has the software's default.

    `exposed` communication is awaited before anything else is computed; `overlapped` communication runs beside the computation
    that reads or makes its data.
    """

    software: Software = PYTORCH
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
        for name, known in self.software.settings.items():
            value = getattr(self, name) or known[0]
            if value not in known:
                raise unknown(f"{name} of a stack with software={self.software.name}", value, known)
            object.__setattr__(self, name, value)
        if self.library:
            LIBRARIES.find(self.library)
        self._check_kinds()
        self._check_gather()
        self._check_dispatch()
        for share in self.bandwidth:
            if not 0 < share <= 1:
                raise must_be("stack", "bandwidth", "shares above 0 and at most 1", share)
        for name in ("launch_s", "alpha_s", "adding_s", *COUNTS):
            if not getattr(self, name) >= 0:
                what = "0 or more" if name in COUNTS else "0 or more seconds"
                raise must_be("stack", name, what, getattr(self, name))

    def _check_gather(self) -> None:
        if self.fp8_gather == YES and self.fp8 in (NOTHING, ROW):
            of = either(scale for scale in self.software.settings["fp8"] if scale not in (NOTHING, ROW))
            raise must_be("stack", "fp8_gather", f"no with fp8={self.fp8}", YES, f"weights are gathered in FP8 with fp8={of}")

    def _check_dispatch(self) -> None:
        if self.precision.dispatch and not self.software.casts_dispatch:
            others = either(f"software={name}" for name, each in SOFTWARE.items() if each.casts_dispatch)
            mend = f"its rows travel as they are; or take {others}"
            raise must_be("stack", "dispatch", f"left out with software={self.software.name}", self.precision.dispatch, mend)

    def _check_kinds(self) -> None:
        for kind in self.unfused:
            if kind not in self.software.unfusable:
                raise unknown(f"unfused of a stack with software={self.software.name}", kind, self.software.unfusable)

    @property
    def is_narrow(self) -> bool:
        """True if activations have fewer bytes than float32; eager kernels then cast to float32 in norms and in the loss."""
        return self.software.is_eager and item_bytes(self.precision.activation) < item_bytes("float32")

    @property
    def gathered(self) -> str:
        """The dtype in which sharded weights are gathered."""
        return self.precision.activation if self.software.gathers_cast else self.precision.weight

    @property
    def narrow_gather(self) -> str:
        """The dtype in which weights of FP8 products are gathered; "" for the default dtype."""
        return FP8 if self.fp8_gather == YES else ""

    @property
    def overlaps_gradients(self) -> bool:
        """True if gradients are reduced, and weights gathered, beside computation."""
        return self.dp != EXPOSED

    def boundary_share(self, tp: int, *, sp: bool) -> int:
        """Return the number of blocks into which the data between two stages are cut; each rank of tp sends one block."""
        return tp if sp or self.messages == SCATTERED else 1


def find_software(name: str) -> Software:
    """Return the software of a name.

    Raises:
        InputError: There is none; the message names the nearest.
    """
    if name not in SOFTWARE:
        raise unknown("software of a stack", name, SOFTWARE)
    return SOFTWARE[name]


_TIMES = {"launch": "launch_s", "alpha": "alpha_s", "adding": "adding_s"}
_SHARES = "bandwidth"
_LIBRARY = "library"
_UNFUSED = "unfused"
_NEXT = "/"  # between the shares of tiers, and between kinds of operators
ROLES = tuple(field.name for field in fields(Precision))
_NAMED = tuple(dict.fromkeys(name for software in SOFTWARE.values() for name in software.settings))
STACK_WORDS = ("software", *_NAMED, *_TIMES, _SHARES, _LIBRARY, _UNFUSED, *COUNTS, *ROLES)


def parse_stack(text: str, named: Mapping[str, str] | None = None) -> Stack:
    """Parse a stack such as `software=megatron,dp=overlapped`, and return it; other settings have their defaults.

    Args:
        text: NAME=VALUE, separated by commas.
        named: The meaning of words without a value.

    Raises:
        InputError: A word is not NAME=VALUE, a name or value is unknown, or a name is given twice.
    """
    found: dict[str, str] = {}
    for word in _words(text, named or {}):
        name, equals, value = word.partition("=")
        if not equals:
            raise must_be("stack", "a word", "NAME=VALUE", word, "e.g. software=megatron,dp=overlapped")
        if name not in STACK_WORDS:
            raise unknown("setting of a stack", name, STACK_WORDS)
        if name in found:
            raise InputError(f"stack: {name} is given twice in {text!r}")
        found[name] = value
    times = {_TIMES[name]: seconds(parse_time(found.pop(name), name)) for name in _TIMES if name in found}
    roles = Precision(**{name: found.pop(name) for name in ROLES if name in found})
    shares = _read_shares(found.pop(_SHARES, ""))
    unfused = tuple(filter(None, found.pop(_UNFUSED, "").split(_NEXT)))
    counts = {name: _count(found.pop(name), name) for name in COUNTS if name in found}
    software = find_software(found.pop("software")) if "software" in found else Stack().software
    return Stack(software, **found, **times, **counts, bandwidth=shares, unfused=unfused, precision=roles)  # type: ignore[arg-type]


def _read_shares(words: str) -> tuple[float, ...]:
    """Return the shares of bandwidth from words such as `0.8/0.9`."""
    try:
        return tuple(map(float, words.split(_NEXT))) if words else ()
    except ValueError:
        mend = "the last is of all other tiers"
        raise must_be("stack", _SHARES, "a share of each tier of links such as 0.8/0.9", words, mend) from None


def _count(word: str, name: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise must_be("stack", name, "a whole number of 0 or more", word)
    return int(word)


def _words(text: str, named: Mapping[str, str]) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    return [part for word in words for part in (named[word].split(",") if word in named else [word])]


def spell_stack(stack: Stack) -> str:
    """Return a stack as the text that `parse_stack` reads: the software, and the settings that differ from defaults."""
    default = Stack(stack.software)
    words = [f"{name}={getattr(stack, name)}" for name in _NAMED if getattr(stack, name) != getattr(default, name)]
    words += [f"{word}={_compact(getattr(stack, name))}" for word, name in _TIMES.items() if getattr(stack, name)]
    words += [f"{_SHARES}={_NEXT.join(f'{share:g}' for share in stack.bandwidth)}"] if stack.bandwidth else []
    words += [f"{_UNFUSED}={_NEXT.join(stack.unfused)}"] if stack.unfused else []
    words += [f"{name}={getattr(stack, name)}" for name in COUNTS if getattr(stack, name)]
    words += [f"{_LIBRARY}={stack.library}"] if stack.library else []
    roles = ((name, getattr(stack.precision, name)) for name in ROLES)
    words += [f"{name}={dtype}" for name, dtype in roles if dtype != getattr(default.precision, name)]
    return ",".join([f"software={stack.software.name}", *words])


def _compact(time_s: float) -> str:
    return format_time(time_s).replace(" ", "")


def overheads(stack: Stack) -> Stack:
    """Return the settings of a stack that are not in a trace: times, bandwidth shares, the library.

    These apply when a trace is timed.

    Raises:
        InputError: The stack has other settings, but a trace is timed as it ran.
    """
    timed = replace(
        Stack(bandwidth=stack.bandwidth, library=stack.library), **{name: getattr(stack, name) for name in _TIMES.values()}
    )
    if stack != timed:
        what = f"{', '.join(_TIMES)}, {_SHARES} and {_LIBRARY} alone, where what ran is timed"
        raise must_be("stack", "words", what, spell_stack(stack), "emu estimate takes the others")
    return timed


def passes_of(operator: ModelOperator, stack: Stack, *, layer: bool = True) -> Passes:
    """Return the passes of an operator with a stack: eager, compiled in a layer, or fused; attention has the stack's kernel."""
    if stack.software.is_eager:
        eager = operator.narrow if stack.is_narrow and operator.narrow else operator.eager
        return operator.compiled if layer and stack.compile == LAYERS and operator.compiled else eager
    unfused = stack.attention == UNFUSED if operator.kind == ATTENTION else operator.kind in stack.unfused
    return operator.unfused if unfused else operator.fused


def pieces_of(operator: ModelOperator, stack: Stack, what: str, *, drops: bool = False) -> tuple[tuple[Amount, Shape], ...]:
    """Return the kernels that run one after another, with the amount and the shape of each.

    Args:
        operator: The operator.
        stack: The software whose kernels run.
        what: `FORWARD`, or `INPUT` for the gradients of the input.
        drops: Whether dropout is on: scores are read and written once more, with a mask of a byte for each; the kernel that
            adds a block's output has such a mask too. Source: Korthikanti et al. (2022), section 4.1.
    """
    passes = passes_of(operator, stack)
    amount = passes.forward if what == FORWARD else passes.backward_input
    if operator.attended is None or stack.attention != UNFUSED:
        masks = operator.outputs.whole + operator.outputs.cut if drops and operator.kind == RESIDUAL else 0
        return split_sum(operator, what, amount + Amount(fixed_bytes=masks), fused=passes is operator.fused)
    return _unfused(operator.attended, amount, what, drops=drops)


def split_sum(operator: ModelOperator, what: str, amount: Amount, *, fused: bool = False) -> tuple[tuple[Amount, Shape], ...]:
    """Return a pass of an operator as one kernel, or as two if a separate kernel adds rows."""
    added = operator.sum_of_rows
    if added is None or added.what != what or fused:
        return ((amount, operator.shape_of(what)),)
    return (amount + added.amount.times(-1), MOVES), (added.amount, added.shape)


def _unfused(
    attended: tuple[int, int, int, int], amount: Amount, what: str, *, drops: bool
) -> tuple[tuple[Amount, Shape], ...]:
    """Return the kernels of unfused attention.

    Forward they are scores, their softmax, and values; backward the gradients of values, softmax, scores, queries and keys.
    Each product has an even share of the bytes that are moved beside the softmax.
    """
    heads, queries, keys, width = attended
    scored = Shape(Kernel.PRODUCT, heads, queries, keys, width)
    out, of_keys = scored._replace(n=width, k=keys), scored._replace(m=keys, n=width, k=queries)
    products = (scored, out) if what == FORWARD else (of_keys, scored, out, of_keys)
    scores = heads * queries * keys
    softmax, dropped = Amount(cut=(2 if what == FORWARD else 3) * scores), Amount(cut=2 * scores, fixed_bytes=scores)
    rest, n = amount + softmax.times(-1), len(products)
    each = Amount(rest.flops // n, rest.whole // n, rest.cut // n)
    shared = [(each, shape) for shape in products[:-1]]
    last = rest + each.times(1 - n), products[-1]
    return (*shared[: n // 2], (softmax, MOVES), *([(dropped, MOVES)] if drops else []), *shared[n // 2 :], last)


def saved_amount(operator: ModelOperator, stack: Stack, plan: Plan, *, layer: bool = True) -> Amount:
    """Return the amount that one rank keeps from the forward of an operator to its backward.

    Eager kernels keep what autograd saves. Fused ones keep the inputs of products as sequence parallelism cuts them, which are
    gathered once more; attention that is recomputed keeps its inputs. Source: Korthikanti et al. (2022), sections 4.2 and 5.
    """
    saved = passes_of(operator, stack, layer=layer).saved
    if stack.software.is_eager:
        return saved
    if operator.kind == ATTENTION and plan.recompute == "selective":
        return replace(operator.fused.saved, fixed_bytes=0)
    if plan.dropout and operator.kind == RESIDUAL:
        return saved + Amount(fixed_bytes=operator.outputs.whole + operator.outputs.cut)
    if plan.dropout and operator.kind == ATTENTION and stack.attention == UNFUSED and operator.attended:
        heads, queries, keys, _ = operator.attended
        return saved + Amount(cut=heads * queries * keys, fixed_bytes=heads * queries * keys)
    if operator.kind == PRODUCT and plan.sp and not operator.experts:
        return replace(saved, whole=saved.whole // (1 if operator.sequence else plan.tp))
    return saved


def in_fp8(operator: ModelOperator, stack: Stack, *, layer: bool) -> bool:
    """Return whether a stack runs an operator in FP8: only products of layers, except routers."""
    if stack.fp8 == NOTHING or operator.kind != PRODUCT or not layer or operator.routed:
        return False
    return not (operator.experts and stack.software.groups_experts)


def casts_of(stack: Stack) -> Casts:
    """Return the bytes that the stack's casts to FP8 move; weights that are gathered in FP8 need no cast."""
    found = stack.software.casts[stack.fp8]
    return found._replace(weight=0) if stack.fp8_gather == YES else found
