"""A trace as a file is the trace."""

from pathlib import Path

import numpy as np
import pytest

from emu.arrays import column
from emu.errors import InputError
from emu.trace.read import load, save
from emu.trace.trace import Events, Group, Kind, Trace


def events(n: int) -> Events:
    rng = np.random.default_rng(n)
    numbers = {
        "step": np.int32,
        "kind": np.int16,
        "stream": np.int16,
        "flops": np.float64,
        "bytes": np.int64,
        "count": np.int64,
        "group": np.int32,
        "instance": np.int32,
        "root": np.int32,
        "tag": np.int32,
    }
    columns = {name: column(rng.integers(0, 3, n), dtype) for name, dtype in numbers.items()}
    names = tuple(rng.choice(["mm", "add", "all_reduce"], n).tolist())
    waits = column(np.arange(n), np.int32)
    return Events(name=names, dtype=("float32",) * n, wait_start=column(np.arange(n + 1), np.int64), wait=waits, **columns)


@pytest.fixture
def trace() -> Trace:
    groups = (Group("world", (0, 1, 2)), Group("tp", (0, 2)))
    roles = column([0, 1, 0], np.int32)
    meta = (("script", "train.py"),)
    return Trace((events(5), events(0)), roles, groups, ((0, 1), (0,), (0, 1)), column([7, 2**40], np.int64), meta)


def test_what_is_saved_is_what_is_loaded(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "t.trace")
    again = load(tmp_path / "t.trace")
    assert again.digest() == trace.digest()
    assert again.meta == trace.meta
    assert again.events_of(2).name == trace.events_of(0).name
    assert again.events[0].kind.dtype == trace.events[0].kind.dtype == np.int16
    assert Kind(int(again.events[0].kind[0])) in Kind


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
    with pytest.raises(InputError, match=r"cannot write .*Is a directory"):
        save(trace, tmp_path)
