"""The software that a job runs on, as far as it changes time and traffic and not results: a value apart from the plan.

A stack in words, such as `software=megatron,attention=unfused,alpha=900ns`: read, and written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from emu.collective.libraries import LIBRARIES
from emu.dtypes import FP8, item_bytes
from emu.errors import InputError, either, must_be
from emu.model.stack.megatron import MEGATRON
from emu.model.stack.pytorch import PYTORCH
from emu.model.stack.software import EXPOSED, NOTHING, ROW, SCATTERED, YES, Software
from emu.registry import unknown
from emu.units import format_time, parse_time, seconds

SOFTWARE: Mapping[str, Software] = {each.name: each for each in (PYTORCH, MEGATRON)}
COUNTS = ("sms", "deferred")  # settings that are whole numbers; 0: none


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
        """The dtype in which weights that are sharded over ranks are gathered."""
        return self.precision.activation if self.software.gathers_cast else self.precision.weight

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
    """Return the stack of words such as `software=megatron,dp=overlapped`; other settings have the software's default.

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
    """Return the words that `parse_stack` reads: the software, and all settings that differ from its defaults."""
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


def beside(stack: Stack) -> Stack:
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
