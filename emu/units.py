"""Units: functions that parse and print sizes, rates and times; virtual time is counted in integer ticks of 1 fs.

Sizes are bytes, rates bytes per second. `GB` is 10**9, `GiB` 2**30; `Gb/s` (bits) is taken on input only. A bare K, M or G is
refused: half of the field means 10**3 by it, the other half 2**10.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

from emu.errors import BareError, must_be

TICKS_PER_S = 10**15
TICKS_PER_US = TICKS_PER_S // 10**6
TICKS_PER_NS = TICKS_PER_S // 10**9
MAX_TICKS = 2**63 - 1

_MOST_DIGITS = 400  # before or after the point; a float has 324 at most
_EXACT = Context(prec=3 * _MOST_DIGITS)

_PREFIX = {"": 0, "K": 1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIMES = {"s": 0, "ms": -3, "us": -6, "µs": -6, "μs": -6, "ns": -9, "ps": -12, "fs": -15}
_LONG_TIMES_S = {"min": 60, "h": 3600, "d": 86400}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*$", re.ASCII)
_WHOLE_DIGITS = 18  # every such number fits a column of int64


def is_whole(text: str) -> bool:
    """Return whether a text is a whole number of 0 or more, of the digits 0 to 9 and at most eighteen of them."""
    return text.isascii() and text.isdecimal() and len(text) <= _WHOLE_DIGITS


def _split(text: str, name: str, what: str) -> tuple[Decimal, str]:
    """Return the number and the unit, such as `MiB`, that the text of a quantity consists of."""
    found = _QUANTITY.match(text)
    if found is None:
        raise must_be("", name, what, text)
    return _exact(found.group(1), name, what, text), found.group(2) or ""


def _scale(prefix: str) -> int | None:
    """Return the factor of a unit prefix such as `M` or `Mi`; None if the prefix is unknown."""
    if prefix.endswith("i"):
        power = _PREFIX.get(prefix[:-1])
        return 1024**power if power else None
    power = _PREFIX.get(prefix)
    return None if power is None else 1000**power


def parse_size(text: str | float, name: str = "size") -> int:
    """Return the bytes of a size such as `64MiB`, `1.5GB` or `4096`.

    Raises:
        InputError: The text is no size, no whole number of bytes, negative, 2**63 or more, or has a bare K, M or G.
    """
    what = "a size such as 64MiB, 1GB or 4096B"
    if not isinstance(text, str):
        return _whole_bytes(_exact(text, name, what), name, what, text)
    number, unit = _split(text, name, what)
    if unit.endswith("b"):
        raise must_be("", name, what, text, "bytes are written with a capital B")
    if unit.removesuffix("i") in _PREFIX.keys() - {""}:
        letter = unit[0].upper()
        raise must_be("", name, what, text, f"say {letter}iB (2**10) or {letter}B (10**3)")
    scale = _scale(unit.removesuffix("B"))
    if scale is None:
        raise must_be("", name, what, text)
    return _whole_bytes(_EXACT.multiply(number, scale), name, what, text)


def _whole_bytes(value: Decimal, name: str, what: str, got: object) -> int:
    """Return a number of bytes as an int, after the check that it is whole, 0 or more and below 2**63."""
    if not 0 <= value < 2**63 or value != value.to_integral_value():
        raise must_be("", name, what, got, "a size is a whole number of bytes, 0 or more and below 2**63")
    return int(value)


def parse_bandwidth(text: str | float, name: str = "bandwidth") -> float:
    """Return the bytes per second of a rate such as `50GB/s` or `400Gb/s` (bits).

    Raises:
        InputError: The text is no rate, not above 0, or above 1 PB/s, a byte a tick.
    """
    what = "a rate above 0 such as 50GB/s or 400Gb/s"
    number, unit = _split(text, name, what) if isinstance(text, str) else (_exact(text, name, what), "B/s")
    per_second = unit.removesuffix("ps") if unit.endswith(("Bps", "bps")) else unit.removesuffix("/s")
    scale = _scale(per_second[:-1]) if per_second != unit and per_second[-1:] in ("B", "b") else None
    rate = float(_EXACT.divide(number * (scale or 0), 8 if per_second.endswith("b") else 1))
    if not 0 < rate <= TICKS_PER_S:
        raise must_be("", name, what, text, "at most 1 PB/s, a byte a tick" if rate > 0 else "")
    return rate


def parse_time(text: str | float, name: str = "time") -> int:
    """Parse a time such as `500ns` (a bare number is in seconds), and return it in ticks of 1 fs.

    Raises:
        InputError: The text is no time, negative, or beyond 2**63 ticks (2.5 hours).
    """
    what = "a time of 0 or more such as 500ns or 1.5us"
    number, unit = _split(text, name, what) if isinstance(text, str) else (_exact(text, name, what), "s")
    if unit not in _TIMES:
        raise must_be("", name, what, text, "units are s, ms, us, ns, ps and fs")
    if number < 0:
        raise must_be("", name, what, text)
    return ticks(number.scaleb(_TIMES[unit], _EXACT), name)


def parse_long_time(text: str | float, name: str = "time") -> Decimal:
    """Return the seconds of a time of any length, such as `30s` or `4h` (a bare number is in seconds).

    Raises:
        InputError: The text is no time, or negative.
    """
    what = "a time of 0 or more such as 30s, 90min or 4h"
    number, unit = _split(text, name, what) if isinstance(text, str) else (_exact(text, name, what), "s")
    if number < 0 or (unit not in _TIMES and unit not in _LONG_TIMES_S):
        raise must_be("", name, what, text)
    if unit in _LONG_TIMES_S:
        return _EXACT.multiply(number, _LONG_TIMES_S[unit])
    return number.scaleb(_TIMES[unit], _EXACT)


def ticks(seconds: float | Decimal, name: str = "time") -> int:
    """Return a number of seconds in ticks, computed exactly and rounded once (half to even)."""
    value = _exact(seconds, name, "a number of seconds")
    if value < 0:
        raise must_be("", name, "0 or more", seconds)
    whole = int(_EXACT.multiply(value, TICKS_PER_S).to_integral_value(ROUND_HALF_EVEN))
    if whole > MAX_TICKS:
        raise BareError(f"{name} must be below 9223 s (2**63 ticks of 1 fs), got {seconds} s")
    return whole


def _exact(number: object, name: str, what: str, got: object = None) -> Decimal:
    """Return a number as an exact decimal.

    Raises:
        InputError: It is no number, or it has more digits before or after the point than any quantity has.
    """
    try:
        value = Decimal(str(number))
    except InvalidOperation:
        raise must_be("", name, what, number if got is None else got) from None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or max(abs(value.adjusted()), abs(exponent)) > _MOST_DIGITS:
        raise must_be("", name, what, number if got is None else got)
    return value


def seconds(ticks: int) -> float:
    """Return the seconds of a number of ticks of 1 fs."""
    return int(ticks) / TICKS_PER_S


def format_size(size_bytes: float) -> str:
    """Return a size as text: `64 MiB`, `1.5 KiB`, `40 B`."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size_bytes >= 1024**power:
            return f"{size_bytes / 1024**power:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def format_bandwidth(bandwidth_Bps: float) -> str:
    """Return a rate as text: `50 GB/s`."""
    return _metric(bandwidth_Bps, "B/s")


def format_flops(flops: float) -> str:
    """Return a number of floating-point operations as text: `989 TFLOP`."""
    return _metric(flops, "FLOP")


def format_count(n: int) -> str:
    """Return a number as text, in thousands, millions, billions or trillions: `405.9 B`, `131.4 k`, `12`."""
    for power, word in ((4, " T"), (3, " B"), (2, " M"), (1, " k")):
        if n >= 1000**power:
            return f"{n / 1000**power:.4g}{word}"
    return str(n)


def _metric(value: float, unit: str) -> str:
    """Return a value with four significant digits and a fitting metric prefix, such as `1.5 GB`."""
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if abs(value) >= 1000**power:
            return f"{value / 1000**power:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_time(time_s: float) -> str:
    """Return a time as text: `2.363 ms`, `500 ns`."""
    for power, unit in ((0, "s"), (-3, "ms"), (-6, "us"), (-9, "ns")):
        if abs(time_s) >= 10.0**power:
            return f"{time_s / 10.0**power:.4g} {unit}"
    return "0 s" if time_s == 0 else f"{time_s * 1e12:.4g} ps"
