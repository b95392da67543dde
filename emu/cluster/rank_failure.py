"""The failures of ranks: exit codes and errors that end a rank's program, and the one of several that the job reports."""

from emu.backend.rank.source_lines import SourceLine, caller, error_line, in_brackets
from emu.errors import EmuError, RunError

# The beginning of TorchScript's errors, and texts in errors of code that looked for a CUDA device itself.
_COMPILED = "The following operation failed in the TorchScript interpreter"
_WITHOUT_CUDA = ("Cannot initialize CUDA", "not linked with support for cuda", "from the 'CUDA' backend", "SparseCsrCUDA")
_OUT_OF_REACH = (
    "cuda: a function that TorchScript has compiled asks for a CUDA device, and looks for it in PyTorch's own code, where "
    "there is none; let it take the device of a tensor that it is given"
)


class HardExit(SystemExit):
    """The end of a rank by `os._exit`, which runs no exit handlers."""


class RankExit(SystemExit):
    """The exit of a rank with a code other than 0.

    Attributes:
        rank: The rank.
        at: The line of its program, in brackets; "" if it is not known.
        others: The waits of other ranks at that time, in words; "" if none waited.
    """

    def __init__(self, code: object, rank: int = 0, at: str = "") -> None:
        super().__init__(code)
        self.rank, self.at, self.others = rank, at, ""

    @property
    def story(self) -> str:
        """The exit in words; a text that the program gave to `sys.exit` counts as code 1."""
        code = self.code if isinstance(self.code, int) else 1
        return f"rank {self.rank} left with exit code {code}{self.at}" + (f"; {self.others}" if self.others else "")


def job_error(rank: int, error: BaseException) -> BaseException:
    """Return the error with which the job fails when `error` ends a rank's program.

    Emu's own errors stay as they are; other errors become one line; an exit code gets the rank.
    """
    at = error_line(error) or caller()
    if isinstance(error, RankExit):
        return error
    if isinstance(error, SystemExit):
        left = RankExit(error.code, rank, in_brackets(at))
        left.__cause__ = error
        return left
    if not isinstance(error, EmuError):
        error = _in_one_line(rank, error, at)
    error.rank = rank
    return error


def _in_one_line(rank: int, error: BaseException, at: SourceLine | None) -> RunError:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    words = type(error).__name__ + (f": {said}" if said else "")
    if said.startswith(_COMPILED) and any(each in str(error) for each in _WITHOUT_CUDA):
        words = _OUT_OF_REACH
    told = RunError(f"rank {rank}: {words}{in_brackets(at)}")
    told.__cause__, told.alike = error, (type(error).__name__, str(at))
    return told


def takes_precedence(new: BaseException, old: BaseException | None) -> bool:
    """Return True if a failure is reported instead of an earlier one.

    Any failure takes precedence over none, and an equal failure of a lower rank over that of a higher one.
    """
    if old is None:
        return True
    first, second = (getattr(each, "rank", None) for each in (new, old))
    if not isinstance(first, int) or not isinstance(second, int):
        return False
    return first < second and _failure_key(new) is not None and _failure_key(new) == _failure_key(old)


def _failure_key(error: BaseException) -> object:
    """Return a value that is equal for failures of different ranks at one line in one way."""
    return ("exit", error.at) if isinstance(error, RankExit) else getattr(error, "alike", None)
