"""The text form of a plan, such as `tp=8,sp,pp=16,dp=128,layers=7,8x14,7,sharding=zero1`: parser and printer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby

from emu.errors import InputError, must_be
from emu.model.plan.plan import CHOICES, MAY_BE_ZERO, MEANT, Plan
from emu.registry import unknown
from emu.units import is_whole

_SIZES = ("tp", "cp", "ep", "dp", "pp", "etp", "vp", "shard", "microbatch")
_NAMES = ("order", "sharding", "recompute", "cp_comm")
_RATES = ("capacity", "imbalance", "clip", "dropout")
_FLAGS = ("sp",)
WORDS = (*_SIZES, *_NAMES, *_RATES, *_FLAGS, "layers")
_DEFAULT = Plan()


def parse_plan(text: str, **batch: int) -> Plan:
    """Parse a plan such as `dp=4,tp=4`, and return it; missing fields have their defaults.

    Args:
        text: NAME=VALUE, separated by commas; `sp` alone.
        batch: Any of global_batch, seq and microbatch.

    Raises:
        InputError: see `read_words`; or values that do not fit each other.
    """
    return Plan(**{**batch, **read_words(text)})  # type: ignore[arg-type]


def read_words(text: str) -> dict[str, object]:
    """Return the values in a text, by the field of a plan.

    Raises:
        InputError: not NAME=VALUE, an unknown name, or one given twice.
    """
    found: dict[str, list[str]] = {}
    last = ""
    for word in text.split(","):
        name, equals, value = word.strip().partition("=")
        if not equals and last == "layers":  # the value of `layers` contains commas
            found[last].append(name)
            continue
        if not equals and name not in _FLAGS:
            else_meant = MEANT.get(name, "e.g. dp=4,tp=4")
            meant = next((f"did you mean {key}={name}?" for key, known in CHOICES.items() if name in known), else_meant)
            raise must_be("plan", "an entry", "NAME=VALUE", word, meant)
        if name not in WORDS:
            raise unknown("axis or setting of a plan", name, WORDS)
        if name in found:
            raise InputError(f"plan: {name} is given twice in {text!r}")
        found[name], last = [value], name
    return {name: _READ[name](name, words) for name, words in found.items()}


def _size(name: str, words: list[str]) -> int:
    if not is_whole(words[0]):
        raise must_be("plan", name, "a whole number", words[0], f"e.g. {name}=4")
    if not int(words[0]) and name not in MAY_BE_ZERO:  # a search has no plan yet that would check it
        raise must_be("plan", name, "1 or more", 0)
    return int(words[0])


def _rate(name: str, words: list[str]) -> float:
    try:
        return float(words[0])
    except ValueError:
        raise must_be("plan", name, "a number", words[0], f"e.g. {name}=1.25") from None


def _flag(name: str, words: list[str]) -> bool:
    if words[0] not in ("", "on", "off"):
        raise must_be("plan", name, "on or off", words[0], f"or write {name} alone")
    return words[0] != "off"


def _layers(name: str, words: list[str]) -> tuple[int, ...]:
    """Return the layers of each stage from words such as `7,8x14,7`: 7 layers, fourteen times 8, and 7."""
    stages: list[int] = []
    for word in words:
        size, times, count = word.strip().partition("x")
        if not is_whole(size) or (times and not is_whole(count)):
            raise must_be("plan", name, "layers of each stage", word, "e.g. layers=7,8x14,7: 7, fourteen times 8, and 7")
        stages += [int(size)] * (int(count) if times else 1)
    return tuple(stages)


_READ: Mapping[str, Callable[[str, list[str]], object]] = {
    **dict.fromkeys(_SIZES, _size),
    **dict.fromkeys(_NAMES, lambda _, words: words[0]),
    **dict.fromkeys(_RATES, _rate),
    **dict.fromkeys(_FLAGS, _flag),
    "layers": _layers,
}


def spell(plan: Plan) -> str:
    """Return a plan as the text that `parse_plan` reads: all fields that differ from defaults, without the batch."""
    order = [name for name in (f.name for f in fields(Plan)) if name in WORDS]
    words = [_word(name, getattr(plan, name)) for name in order if getattr(plan, name) != getattr(_DEFAULT, name)]
    return ",".join(words) or "dp=1"


def spell_layers(layers: Sequence[int]) -> str:
    """Return a text such as `7,8x14,7` for the layers of each stage."""
    runs = ((size, len([*times])) for size, times in groupby(layers))
    return ",".join(f"{size}x{times}" if times > 1 else str(size) for size, times in runs)


def _word(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return f"{name}={spell_layers(value)}"
    if isinstance(value, bool):
        return name
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
