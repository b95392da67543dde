"""A trace as a file is the trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from emu.arrays import column
from emu.errors import InputError, WriteError
from emu.trace import trace_file
from emu.trace.trace import Events, Group, Trace
from emu.trace.trace_file import load, save


def events(n: int) -> Events:
    rng = np.random.default_rng(n)
    numbers = {
        "step": np.int32,
        "kind": np.int16,
        "stream": np.int16,
        "flops": np.float64,
        "bytes": np.int64,
        "count": np.int64,
        "kernel": np.int16,
        "batch": np.int32,
        "m": np.int32,
        "n": np.int32,
        "k": np.int32,
        "group": np.int32,
        "instance": np.int32,
        "root": np.int32,
        "tag": np.int32,
    }
    columns = {name: column(rng.integers(0, 3, n), dtype) for name, dtype in numbers.items()}
    names = tuple(rng.choice(["mm", "add", "all_reduce"], n).tolist())
    waits = column(np.arange(n), np.int32)
    start = column(np.arange(n + 1), np.int64)
    ragged = {"wait_start": start, "wait": waits, "split_start": start, "split": column(rng.integers(0, 9, n), np.int64)}
    lasts_s = column(rng.random(n), np.float64)
    return Events(name=names, dtype=("float32",) * n, lasts_s=lasts_s, **ragged, **columns)


@pytest.fixture
def trace() -> Trace:
    groups = (Group("world", (0, 1, 2)), Group("tp", (0, 2)))
    roles = column([0, 1, 0], np.int32)
    meta = (("script", "train.py"),)
    return Trace(
        (events(5), events(0)), roles, groups, ((0, 1), (0,), (0, 1)), np.array([[7, 0, 0, 0], [2**40, 0, 0, 0]]), meta
    )


def test_what_is_saved_is_what_is_loaded(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "t.trace")
    again = load(tmp_path / "t.trace")
    assert again.digest() == trace.digest()
    assert again.meta == trace.meta
    for role in range(2):
        assert columns(again.events[role]) == columns(trace.events[role])


def columns(events: Events) -> dict[str, object]:
    """All of them, with their types."""
    found = {name: getattr(events, name) for name in Events.__slots__}
    return {name: (str(c.dtype), c.tolist()) if isinstance(c, np.ndarray) else c for name, c in found.items()}


@pytest.mark.parametrize("name", Events.__slots__)
def test_a_trace_with_another_column_has_another_digest(trace: Trace, name: str) -> None:
    was = getattr(trace.events[0], name)
    changed = ("other", *was[1:]) if isinstance(was, tuple) else column(np.append(was[:-1], was[-1] + 1), was.dtype.type)
    other = replace(trace, events=(replace(trace.events[0], **{name: changed}), trace.events[1]))
    assert other.digest() != trace.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"role_of_rank": column([0, 1, 1], np.int32)},
        {"peak_by_part": np.array([[7, 0, 0, 1], [2**40, 0, 0, 0]])},
        {"groups": (Group("world", (0, 1, 2)), Group("dp", (0, 2)))},
        {"groups": (Group("world", (0, 1, 2)), Group("tp", (2, 0)))},
        {"group_of": ((0, 1), (0,), (1, 0))},
    ],
)
def test_a_trace_with_other_roles_or_groups_has_another_digest(trace: Trace, change: dict[str, Any]) -> None:
    assert replace(trace, **change).digest() != trace.digest()


def test_a_file_of_another_version_is_refused(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_FORMAT", "emu trace 0")
    save(trace, tmp_path / "old.trace")
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"'.*old\.trace' is no trace of this version \(emu trace \d+\); record it again by"):
        load(tmp_path / "old.trace")


def test_equal_traces_are_equal_files(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "a")
    save(trace, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("content", [b"", b"PK no zip", b"a line of text\n"])
def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=r"'.*x' is no trace of this version"):
        load(tmp_path / "x")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, trace: Trace) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        load(tmp_path / "none")
    with pytest.raises(WriteError, match=r"--trace: cannot write .*Is a directory"):
        save(trace, tmp_path)


def test_a_file_from_before_times_were_measured_is_read_as_one_in_which_nothing_was(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "new")
    with ZipFile(tmp_path / "new") as new, ZipFile(tmp_path / "old", "w") as old:
        for name in new.namelist():
            if not name.endswith("/lasts_s.npy"):
                old.writestr(name, new.read(name))
    for found, saved in zip(load(tmp_path / "old").events, trace.events, strict=True):
        assert found.lasts_s.tolist() == []
        assert {**columns(found), "lasts_s": 0} == {**columns(saved), "lasts_s": 0}
