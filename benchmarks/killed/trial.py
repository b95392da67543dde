"""One command that a signal ends at one moment, and what it leaves."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.command import EMU
from benchmarks.killed.cases import SCRIPT, WHOLE, Case
from emu.cluster.child_processes import adopt_orphans, end_all

_PATIENCE_S = 30.0  # for a command to end, and for what is left to be gone
_LOOK_S = 0.02
_PYTORCHS = "torchinductor_"  # a cache of PyTorch's own, which it keeps among temporary files
_OWN = {"train.py", "out", "err", "cache", *(f"said-{rank}" for rank in range(4))}  # in the folder of a command
# What a command ends with: as it was about to end; as it hears of the signal; as the signal ends Python before that.
CODES = {"SIGINT": {0, 130, 1, -2}, "SIGTERM": {0, 143, -15}, "SIGKILL": {0, -9}, "SIGKILL of the child": {0, 1, -9}}


@dataclass(frozen=True, slots=True)
class Trial:
    """The findings of one trial: what is wrong, and how long the command and what it had started took to end."""

    wrong: tuple[str, ...]
    ended_s: float
    gone_s: float


def takes_s(case: Case, cache: Path) -> float:
    """Return how long a command takes that nobody kills: all that it writes is there then, and whole."""
    with _folders() as (place, temporary):
        since = time.monotonic()
        environ = _environ(temporary, cache)
        subprocess.run(
            [EMU, *case.words], cwd=place, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        took_s = time.monotonic() - since
        wrong = [*_files(case, place), *(name for name in case.outputs if not (place / name).is_file())]
    assert not wrong, wrong
    return took_s


def _environ(temporary: Path, cache: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}


def tried(case: Case, how: str, at_s: float, cache: Path) -> Trial:
    """Start a command, send it a signal, and look at what is left.

    Args:
        case: The command.
        how: One of `CODES`.
        at_s: After its start.
        cache: Where commands keep what they have compiled.
    """
    with _folders() as (place, temporary), adopt_orphans():
        try:
            return _tried(case, how, at_s, place, _environ(temporary, cache))
        finally:
            end_all()


@contextmanager
def _folders() -> Iterator[tuple[Path, Path]]:
    """Make a folder to work in and one for temporary files; the second has a short name, as Ray puts sockets in it."""
    place, temporary = (Path(tempfile.mkdtemp(prefix="k", dir="/tmp")) for _ in range(2))
    (place / "train.py").write_text(SCRIPT)
    try:
        yield place, temporary
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(temporary, ignore_errors=True)


def _tried(case: Case, how: str, at_s: float, place: Path, environ: dict[str, str]) -> Trial:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
        command = subprocess.Popen([EMU, *case.words], stdout=out, stderr=err, cwd=place, env=environ)
        with suppress(subprocess.TimeoutExpired):
            command.wait(at_s)
        _send(command, how)
        since = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            command.wait(_PATIENCE_S)
    ended_s = time.monotonic() - since
    left = _awaited(lambda: [*_left(before), *_temporary(Path(environ["TMPDIR"]))], since)
    gone_s = time.monotonic() - since
    wrong = [] if command.returncode in CODES[how] else [f"exit code {command.returncode}: {_last_words(place)}"]
    return Trial((*wrong, *left, *_files(case, place), *_unsaid(case, place)), ended_s, gone_s)


def _send(command: "subprocess.Popen[bytes]", how: str) -> None:
    name, _, of_child = how.partition(" ")
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(command.pid)
        child = next(iter(process.children()), process) if of_child else process
        child.send_signal(getattr(signal, name))


def _last_words(place: Path) -> str:
    return " / ".join((place / "err").read_text(errors="replace").splitlines()[-3:])


def _awaited(look: Callable[[], list[str]], since: float) -> list[str]:
    """Look until nothing is found or patience is at its end; return what was found last."""
    while (found := look()) and time.monotonic() - since < _PATIENCE_S:
        time.sleep(_LOOK_S)
    return found


def _left(before: Collection[int]) -> list[str]:
    """Return the processes that were not there before.

    This process is given those whose parents have died, whatever they have done to be alone.
    """
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.pid in before:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"process {' '.join(process.cmdline())[:60]}")
            elif process.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return found


def _temporary(folder: Path) -> list[str]:
    return [f"temporary {path.name}" for path in folder.iterdir() if not path.name.startswith(_PYTORCHS)]


def _files(case: Case, place: Path) -> list[str]:
    """Return the files that are neither the person's nor asked for, or not whole."""
    found = [f"file {path.name}" for path in place.iterdir() if path.name not in _OWN | case.outputs]
    for name in case.outputs:
        path = place / name
        if path.exists():
            try:
                WHOLE[path.suffix](path)
            except Exception as error:  # whatever a reader makes of half a file
                found.append(f"half of {name}: {type(error).__name__}")
    return found


def _unsaid(case: Case, place: Path) -> list[str]:
    """Return the lines that a rank has printed and then noted, and that are not in what was printed."""
    if not case.tells:
        return []
    printed = set((place / "out").read_text(errors="replace").splitlines())
    noted = [line for path in place.glob("said-*") for line in path.read_text().splitlines()]
    return [f"unsaid: {line}" for line in noted if line not in printed]
