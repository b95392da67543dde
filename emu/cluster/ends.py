"""How a rank's program ends that does not come to its end: with a code, or of an error; and which of several is told."""

from emu.backend.rank.source_lines import SourceLine, caller, error_line, in_brackets
from emu.errors import EmuError, RunError

# How TorchScript's errors begin, and what is in those of code that has looked for a CUDA device itself.
_COMPILED = "The following operation failed in the TorchScript interpreter"
_WITHOUT_CUDA = ("Cannot initialize CUDA", "not linked with support for cuda", "from the 'CUDA' backend", "SparseCsrCUDA")
_OUT_OF_REACH = (
    "cuda: a function that TorchScript has compiled asks for a CUDA device, and looks for it in PyTorch's own code, where "
    "there is none; let it take the device of a tensor that it is given"
)


class HardExit(SystemExit):
    """The end of a rank by `os._exit`: nothing is done at its exit."""


class RankExit(SystemExit):
    """A rank that has left with a code other than 0.

    Attributes:
        rank: The rank.
        at: The line of its program, in brackets; "" where it is not known.
        others: Who waited for what then; "" where nobody did.
    """

    def __init__(self, code: object, rank: int = 0, at: str = "") -> None:
        super().__init__(code)
        self.rank, self.at, self.others = rank, at, ""

    @property
    def story(self) -> str:
        """What has happened, in words; `sys.exit` takes words for a code, too, which are 1."""
        code = self.code if isinstance(self.code, int) else 1
        return f"rank {self.rank} left with exit code {code}{self.at}" + (f"; {self.others}" if self.others else "")


class StoppedError(RunError):
    """What a rank is told that goes on after the run has failed."""


def failed(rank: int, error: BaseException) -> BaseException:
    """Return what the job fails of when `error` ends a rank's program.

    Our own errors stay as they are, others are told in one line; where a rank leaves with a code, the rank is added.
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


def is_told_before(new: BaseException, old: BaseException | None) -> bool:
    """Return whether a failure is told instead of an earlier one: the same of a lower rank, or any where there is none."""
    if old is None:
        return True
    first, second = (getattr(each, "rank", None) for each in (new, old))
    if not isinstance(first, int) or not isinstance(second, int):
        return False
    return first < second and _alike(new) is not None and _alike(new) == _alike(old)


def _alike(error: BaseException) -> object:
    """What two failures have in common if ranks fail at one line in one way, whichever of them does so first."""
    return ("exit", error.at) if isinstance(error, RankExit) else getattr(error, "alike", None)
