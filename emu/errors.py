"""Errors for the user: one line each, and an exit code of the program."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LEAVES_THREADS = "leaves_threads"  # attribute of an error that ends a run while one of its threads is in native code


class EmuError(Exception):
    """The base class of all errors that Emu raises on purpose; its text is the line that the user sees.

    `field`, `value` and `mend` are the parts of that line: what is wrong, what was given, and how to mend it.
    """

    exit_code = 1
    field: str | None = None  # the option, argument or key that it names; None: none
    value: object = None  # what was given for it
    mend: str = ""  # how to mend it; "": the line says no more
    rank: int | None = None  # the rank whose program it ended; None: no single rank's
    lines: tuple[str, ...] = ()  # traceback of the user's own lines
    alike: tuple[str, str] | None = None  # the kind of its cause and its line, equal where ranks fail in the same way

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process makes this error, whatever its class takes: a pool that cannot would wait forever."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: "type[EmuError]", args: tuple[Any, ...], fields: Mapping[str, Any]) -> "EmuError":
    """Return an error of another process."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class InputError(EmuError):
    """The error of invalid input, such as a bad name, value, shape or file; it is raised before any work starts."""

    exit_code = 2


class BareError(InputError):
    """An input error whose text does not name a file or a topology yet; `at_place` puts that before it."""


class SplitError(EmuError):
    """The error of a sprayed message that Emu cannot cut evenly over the ways that are left.

    It is a limit of Emu, so that it must not be taken for a machine that cannot react to its faults, an `InputError`.
    """

    exit_code = 2


class RunError(EmuError):
    """The error of a run that went wrong: a dead rank, a deadlock, a failed proof, wrong data."""

    exit_code = 1


class WriteError(RunError):
    """The error of an output file that could not be written; the result itself exists and can still be printed."""


class LostError(RunError):
    """The error of lost ranks: their NPU failed or their process died, and their state is gone."""


def must_be(where: str, name: str, what: str, got: object, mend: str = "") -> InputError:
    """Return an input error in the standard form `<where>: <name> must be <what>, got <value>; <how to mend>`."""
    value = repr(got) if isinstance(got, str) else " ".join(str(got).split())
    line = f"{name} must be {what}, got {value}" + (f"; {mend}" if mend else "")
    error = InputError(f"{where}: {line}") if where else BareError(line)
    error.field, error.value, error.mend = name, got, mend
    return error


def mendable(line: str, name: str, got: object, mend: str) -> InputError:
    """Return an input error `<line>; <how to mend it>` with its parts, for a line that is not in the standard form."""
    error = InputError(f"{line}; {mend}")
    error.field, error.value, error.mend = name, got, mend
    return error


def either(words: Iterable[str]) -> str:
    """Return words joined in the form `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def rank_list(ranks: Sequence[int]) -> str:
    """Return a text such as `0, 1`, which names eight ranks at most."""
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"


def at_place(where: object, error: InputError) -> InputError:
    """Return the error with the name of a file or a topology at the beginning of its line.

    The name is left out if the line begins with it already.
    """
    line = str(error) if isinstance(error, BareError) else str(error).partition(": ")[2]
    placed = InputError(f"{where}: {line}")
    placed.field, placed.value, placed.mend = error.field, error.value, error.mend
    return placed
