"""A command timed from its start to its end, as a user waits for it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

EMU = Path(sys.executable).with_name("emu")
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # with it, each command would compile Emu's source anew, which no user waits for


def asked_for(known: Iterable[str], benchmark: str, what: str = "case") -> list[str]:
    """Return the names on the command line; all that are known where there is none.

    Args:
        known: The names that may be asked for.
        benchmark: The name of the benchmark.
        what: What a name is the name of.

    Raises:
        SystemExit: a name is unknown: a line names it and all that there are, with code 2.
    """
    every = list(known)
    unknown = [name for name in sys.argv[1:] if name not in every]
    if unknown:
        sys.stderr.write(f"{benchmark}: no {what} {', '.join(unknown)}; there are {', '.join(every)}\n")
        sys.exit(2)
    return sys.argv[1:] or every


class Ran(NamedTuple):
    """The output of a command, and what it took."""

    said: str
    wall_s: float
    cpu_s: float  # of user and system, all threads
    peak_gb: float

    def __str__(self) -> str:
        return f"{self.wall_s:.2f} s, {self.peak_gb:.2f} GB"


def ran(*command: str | Path, environ: Mapping[str, str] | None = None, quiet: bool = False) -> Ran:
    """Run a command; return what it prints, how long it takes and the peak of its memory.

    Args:
        command: The program and its words.
        environ: What the environment has in place of this process's, or beside it.
        quiet: Whether what it says on stderr is thrown away.

    Raises:
        CalledProcessError: it fails.
    """
    since = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        own = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
        env = {**own, **(environ or {})}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL if quiet else None, env=env)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - since
        out.seek(0)
        said = out.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [str(word) for word in command], said)
    return Ran(said, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9)
