"""Checked access to the arguments of a profile's event: an invalid number becomes a one-line error."""

from collections.abc import Mapping
from typing import Any

from emu.errors import BareError, InputError

MOST = 2**62  # limit of sizes: the bytes of any that is larger are no number of 64 bits
# Errors that arguments of another form than PyTorch writes cause where they are taken apart.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def whole(args: Mapping[str, Any], name: str, default: int | None = None, least: int = 0, below: int = MOST) -> int:
    """Return an argument that is a whole number, or the digits of one.

    Args:
        args: The arguments of an event.
        name: The argument.
        default: The number where the event has no such argument; None: it must have one.
        least: The smallest allowed number.
        below: All numbers must be below this one.

    Raises:
        BareError: it is something else, or missing.
    """
    value = args.get(name, default)
    found = int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20 else value
    counts = (isinstance(found, int) and not isinstance(found, bool)) or (isinstance(found, float) and found.is_integer())
    if not counts or not least <= found < below:
        raise BareError(f"must have a whole number of {least} or more and below {below} as {name!r}, got {str(value)[:40]!r}")
    return int(found)


def refusal(where: str, error: Exception) -> InputError:
    """Return the error of an event whose arguments cannot be taken.

    Args:
        where: The words that name the event and its file.
        error: A `BareError` or one of `UNREADABLE`.
    """
    if isinstance(error, BareError):
        return InputError(f"profile: {where} {error}")
    kind = type(error).__name__
    return InputError(f"profile: {where} has arguments of another form than PyTorch writes ({kind}); profile again")
