"""A program made ready in a folder, and run in one place."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import EMU
from benchmarks.programs.manifest import Change, Program

LIMIT_S = 120.0
STAND_IN = Path(__file__).parent / "stand_in"
_ROOT = Path(__file__).parents[2]
_LEFT = shutil.ignore_patterns(".git", "*.png", "*.jpg", "*.gif", "*.mp4", "*.ipynb", "*.pdf")
_ENVIRON = {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",  # emulated ranks run functions as they are
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Ended(NamedTuple):
    """How a program ended in one place."""

    code: int | None  # None: it was ended at the limit
    wall_s: float
    said: str
    record: Path

    @property
    def ok(self) -> bool:
        """Return whether the program ran to its end."""
        return self.code == 0


def prepare(program: Program, checkouts: Path, data: Path, into: Path) -> Path:
    """Copy the program with its changes made; return its file.

    Raises:
        ManifestError: it is another version, or a change does not fit.
    """
    checkout = checkouts / program.repository
    program.check(checkout / program.path)
    shutil.copytree(checkout / program.root, into, ignore=_LEFT)
    script = into / program.script
    if script.suffix == ".rst":
        page, script = script, script.with_suffix(".py")
        script.write_text(_code(page.read_text(), program.blocks))
    for path, text in program.writes.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(text.replace("{data}", str(data)))
    for change in program.changes:
        _change(into / change.file if change.file else script, change, data)
    script.write_text(with_record(script.read_text()))
    return script


def _change(file: Path, change: Change, data: Path) -> None:
    file.write_text(change.applied(file.read_text(), file.name, data))


def _code(page: str, numbers: Sequence[int]) -> str:
    """Return the blocks of Python code of a page of documentation, those of these numbers or all."""
    found = re.findall(r"^(?:\.\. code(?:-block)?:: python|::)\n\n((?:[ \t]+.*\n|\n)+)", page, re.MULTILINE)
    return "\n".join(textwrap.dedent(found[i]) for i in numbers or range(len(found)))


def with_record(source: str) -> str:
    """Return the program with the recorder imported on a line before its first statement."""
    first = next(each for each in ast.parse(source).body if not _is_head(each))
    at = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))]) - 1
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:at], "import program_record\n", *lines[at:]])


def _is_head(statement: ast.stmt) -> bool:
    """Return whether a statement is the docstring or an import from __future__."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def run(program: Program, place: str, script: Path, root: Path, data: Path, limit_s: float = LIMIT_S) -> Ended:
    """Run a prepared program in one place: gloo or threads."""
    record = root.with_name(f"record-{root.name}")
    record.mkdir(parents=True)
    words = [word.replace("{data}", str(data)) for word in program.words]
    since = time.monotonic()
    with (record / "said").open("w+") as said:
        process = subprocess.Popen(
            [*_launcher(program, place), str(script), *words],
            cwd=root / program.cwd,
            env=_environ(program, place, root, record, data),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        code = _wait(process, limit_s)
        wall_s = time.monotonic() - since
    return Ended(code, wall_s, (record / "said").read_text(errors="replace"), record)


def _launcher(program: Program, place: str) -> list[str]:
    if place == "threads":
        return [str(EMU), "run", "--ranks", str(program.ranks), "--topology", "ub-mesh:board"]
    if program.alone:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(program.ranks)]


def _environ(program: Program, place: str, root: Path, record: Path, data: Path) -> dict[str, str]:
    own = {name: value.replace("{data}", str(data)) for name, value in program.environ.items()}
    told = {"PROGRAM_RECORD": str(record), "PROGRAM_RANKS": str(program.ranks), "PROGRAM_PLACE": place}
    homes = {"HF_HOME": str(record / "hf")}
    ours = [STAND_IN, *(STAND_IN / each for each in program.stand_ins)]
    path = [str(each) for each in (*ours, root / program.cwd, root, root / "src", _ROOT)]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    return {**os.environ, **_ENVIRON, **homes, **own, **told, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code; None where the program was ended, with the processes that it has started."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
