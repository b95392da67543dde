"""Processes as a person starts them, but for what Python loads: one process has loaded it, and is forked for each."""

import multiprocessing
import os
import pkgutil
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import emu
import launch
from launch.main import main

FORKS = multiprocessing.get_context("forkserver")
_LOADED = [m.name for p in (emu, launch) for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}.") if "ray" not in m.name]
FORKS.set_forkserver_preload(["torch.distributed", *_LOADED])


@dataclass(frozen=True)
class Ended:
    """The end of a process: its exit code and what it printed."""

    code: int
    out: str
    err: str


class Fork:
    """A process in a folder, with an environment that adds to this one's.

    Args:
        what: A function of a module, and its arguments.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], *what: object) -> None:
        self._printed = TemporaryDirectory()
        self._files = [Path(self._printed.name, name) for name in ("out", "err")]
        given = ({**os.environ, **env}, folder, self._files, *what)
        self._process = FORKS.Process(target=_inside, args=given, daemon=True)
        self._process.start()

    def end(self, timeout_s: float = 240) -> Ended:
        """Wait for it; one that takes longer is killed."""
        self._process.join(timeout_s)
        self._process.kill()
        self._process.join()
        with self._printed:
            return Ended(self._process.exitcode, *(file.read_text() for file in self._files))


def _inside(env: Mapping[str, str], folder: Path, files: list[Path], what: Callable[..., object], *given: object) -> None:
    os.environ.update(env)
    os.chdir(folder)
    for stream, file in ((sys.stdout, files[0]), (sys.stderr, files[1])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream.fileno())
    warnings.simplefilter("ignore")
    what(*given)


def command(*words: str) -> None:
    """Run the command `emu` with these words."""
    sys.argv = ["emu", *words]
    main(list(words))


def script(path: str, *arguments: str) -> None:
    """Run what `python PATH ARGUMENT ...` runs."""
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
