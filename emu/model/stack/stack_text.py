"""A stack in words, such as `software=megatron,attention=unfused,alpha=900ns`: read, and written."""

from collections.abc import Mapping
from dataclasses import fields, replace

from emu.errors import InputError, must_be
from emu.model.stack.stack import COUNTS, SOFTWARE, Precision, Stack, find_software
from emu.registry import unknown
from emu.units import format_time, parse_time, seconds

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
