"""The reader of published runs from a CSV file: model sizes, plan, and measured step time of each run.

The columns are those of launch/data/measured/training.csv; other columns are ignored.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.description.values import csv_rows, located
from emu.trace.device.step_error import RunKind
from launch.data.devices import DEVICES

FP8 = "fp8"  # of products; all else in bfloat16
PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", FP8: "bfloat16"}
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A published run: one row of the CSV file."""

    line: int  # of the file
    id: str
    device: str
    gpus: int
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    seq: int
    tp: int
    pp: int
    microbatch: int
    global_batch: int
    step_s: float
    kv_heads: int = 0  # 0: as many as heads
    experts: int = 0  # of a layer; 0: it is dense
    top_k: int = 0
    cp: int = 1
    ep: int = 1
    vp: int = 1
    dp: int = 0  # 0: what is left of the GPUs
    model: str = ""
    source: str = ""
    recompute: str = "none"
    precision: str = "bf16"
    software: str = ""  # the name of a setting, where the source does not say which

    @property
    def kind(self) -> str:
        """The kind of the model, such as dense or mixture of experts, and whether products are in FP8."""
        return RunKind(bool(self.experts), self.precision == FP8).word


_NEEDED = [f.name for f in fields(Run) if f.default is MISSING and f.name != "line"]


def read_runs(path: Path, name: str) -> list[Run]:
    """Return the runs of a file.

    Raises:
        InputError: There is no such file, a column is missing, or a value is invalid; the message names file and line.
    """
    with csv_rows(path, "repro", name, _NEEDED) as reader:
        found = [*_runs(reader, name)]
    if not found:
        raise InputError(f"{name}, line 2: a row must follow the names of the columns, got none")
    return found


def _runs(reader: "csv.DictReader[str]", name: str) -> Iterator[Run]:
    seen: dict[str, int] = {}
    for row in reader:
        run = _run(row, reader.line_num, f"{name}, line {reader.line_num}")
        if run.id in seen:
            raise must_be(f"{name}, line {run.line}", "id", f"one that line {seen[run.id]} has not", run.id)
        seen[run.id] = run.line
        yield run


def _run(row: Mapping[str, str | None], line: int, where: str) -> Run:
    given = {f.name: (row.get(f.name) or "").strip() for f in fields(Run)}
    empty = [name for name in _NEEDED if not given[name]]
    if empty:
        raise InputError(f"{where}: {empty[0]} is missing, it must have a value in every row")
    readers: dict[object, Callable[[str, str, str], object]] = {int: _whole, float: _above_0, str: _text}
    values = {f.name: readers[f.type](given[f.name], f.name, where) for f in fields(Run) if given[f.name]}
    run = Run(**{**values, "line": line})  # type: ignore[arg-type]
    _check(run, where)
    return run


def _text(word: str, column: str, where: str) -> str:
    return word


def _whole(word: str, column: str, where: str) -> int:
    least = 0 if column in ("experts", "top_k", "kv_heads") else 1
    if not word.isascii() or not word.isdigit() or int(word) < least:
        raise must_be(where, column, f"a whole number of {least} or more", word)
    return int(word)


def _above_0(word: str, column: str, where: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise must_be(where, column, "a number above 0", word)
    return found


def _check(run: Run, where: str) -> None:
    for column, known in (("device", DEVICES), ("precision", PRECISIONS), ("recompute", RECOMPUTE)):
        if getattr(run, column) not in known:
            with located(where):
                raise unknown(column, getattr(run, column), known)
    ranks = run.tp * run.cp * run.pp
    dp = run.dp or run.gpus // ranks
    if dp * ranks != run.gpus:
        raise must_be(where, "gpus", f"tp * cp * pp * dp = {ranks} * {run.dp or 'dp'}", run.gpus)
    if bool(run.experts) != bool(run.top_k) or run.top_k > run.experts:
        raise must_be(where, "top_k", f"1 to {run.experts} of {run.experts} experts", run.top_k, "or 0 experts, and top_k 0")
