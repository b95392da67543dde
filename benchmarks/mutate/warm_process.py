"""Run pytest in a process that has the large libraries already, so that a few tests take one second instead of six.

A server process imports them once and forks for each run. Nothing of this repository is imported before a fault is in its file.
"""

import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

LIBRARIES = ["pytest", "torch", "numba", "scipy.optimize", "scipy.sparse.csgraph", "networkx"]
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(LIBRARIES)


def run_pytest(words: list[str], root: Path, env: Mapping[str, str], limit_s: float | None, output: Path) -> int | None:
    """Return the exit code of pytest, None if it had not ended within the limit; all that it started ends with it then.

    Args:
        words: The arguments of pytest.
        root: The folder in which it runs, and from which the modules come.
        env: Variables of the environment that differ from this process's.
        limit_s: The time limit in seconds; None for no limit.
        output: The file that receives what it prints.
    """
    process = _FORKS.Process(target=_pytest, args=(words, root, dict(env), output))
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode


def _pytest(words: list[str], root: Path, env: dict[str, str], output: Path) -> None:
    os.setsid()
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(root)
    os.environ.update(env)
    sys.path.insert(0, str(root))
    for name in [each for each in sys.modules if each.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]  # this process has them from the checkout, not from the copy
    import numba  # noqa: PLC0415  # the server has imported both, unless another user of Python's one server has started it
    import pytest  # noqa: PLC0415

    numba.config.reload_config()  # it read the folder for machine code when the server imported it
    code = pytest.main(words)
    sys.stdout.flush()
    os._exit(code)
