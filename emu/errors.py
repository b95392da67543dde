"""Errors that a person is meant to read: one line each, and the exit code that goes with it."""

LEAVES_THREADS = "leaves_threads"  # an attribute of what ends a run while a thread of it is left in native code


class EmuError(Exception):
    """Base of every error that Emu raises on purpose; `str()` of it is the one line that is shown."""

    exit_code = 1
    rank: int | None = None  # whose program it ended, if it was one's
    lines: tuple[str, ...] = ()  # and where, as a traceback of the user's own lines
    alike: tuple[str, str] | None = None  # the kind of its cause and the line: the same where ranks fail in one way


class InputError(EmuError):
    """What was asked cannot be done: a bad name, value, shape or file. Nothing was started."""

    exit_code = 2


class RunError(EmuError):
    """What was started went wrong: a dead rank, a deadlock, a failed proof, wrong data."""

    exit_code = 1


class WriteError(RunError):
    """A file could not be written after all; what it was to hold is known, and can still be printed."""


class LostError(RunError):
    """Ranks of a job are gone, with all that they had: their NPU failed, or their process died."""


def must_be(where: str, name: str, what: str, got: object, mend: str = "") -> InputError:
    """The one template of input errors: `<where>: <name> must be <what>, got <value>; <how to mend>`."""
    value = repr(got) if isinstance(got, str) else " ".join(str(got).split())
    return InputError(f"{where}: {name} must be {what}, got {value}" + (f"; {mend}" if mend else ""))
