"""Input files: one function reads them all, announces large ones, and refuses text that would take minutes."""

import re
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.files import MOST_TEXT_BYTES, read_input

ROOT = Path(__file__).parents[2]
STEP = ("--plan", "dp=2", "--global-batch", "2", "--seq", "8")
ON = ("--topology", "ub-mesh:board")
LARGE = {
    "topology in TOML": ("show", "topology", "large.toml"),
    "topology in CSV": ("show", "topology", "large.csv"),
    "topology in GraphML": ("show", "topology", "large.graphml"),
    "model": ("estimate", "--model", "large.toml", *STEP, *ON),
    "device": ("estimate", "--model", "llama-tiny", "--device", "large.toml", *STEP, *ON),
    "faults": ("estimate", "--model", "llama-tiny", "--fault", "large.toml", *STEP, *ON),
    "prices": ("cost", *ON, "--prices", "large.toml"),
    "log of faults": ("faults", *ON, "--tp", "4", "--log", "large.csv"),
    "arrivals": ("queue", *ON, "--arrivals", "large.csv"),
    "MSCCL program": ("verify", "--import", "large.xml"),
    "options": ("verify", "--config", "large.toml"),
    "script": ("run", "--ranks", "2", *ON, "large.py"),
    "measured runs": ("repro", "measured", "--data", "large.csv"),
}
# Modules that open only what Emu has written or brings along; what a user names goes through `read_input`.
OWN = ("emu/files.py", "emu/store.py", "emu/sources.py", "emu/model/parallel/checkpoint.py", "emu/cluster/child_processes.py")
OWN += ("emu/study/training/learn/checkpoints.py", "launch/data", "launch/papers", "launch/ray/process.py")
OWN += ("emu/trace/formats/kineto/json_events.py",)  # profiles may have gigabytes: they are read event by event
# The first bytes of a file tell what it is; the rest is read only if it is ours.
OWN += ("emu/trace/formats/chakra/chakra_files.py", "emu/trace/formats/chakra/chakra_node.py")
OWN += ("emu/trace/formats/goal/goal_trace.py",)  # a few bytes tell the binary form; the rest goes through `read_input`


def large(path: Path, size: int) -> None:
    """Make a file of so many bytes that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("kind", LARGE)
def test_every_file_of_text_that_is_too_large_is_refused_in_one_line(emu, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    name = next(word for word in LARGE[kind] if word.startswith("large."))
    large(tmp_path / name, MOST_TEXT_BYTES + 2 * 10**6)
    done = emu(*LARGE[kind])
    lines = [line for line in done.err.splitlines() if not line.startswith("emu: loading")]
    assert (done.code, len(lines), done.out) == (2, 1, "")
    assert re.search(rf"{name}' must have at most 64 MB, got 66 MB; \w.*", lines[0]), lines[0]


def test_a_large_topology_is_to_be_built_by_groups_or_in_python(emu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    large(tmp_path / "large.csv", 140 * 10**6)
    said = "topology: 'large.csv' must have at most 64 MB, got 140 MB; give whole groups of nodes an entry in TOML, or build it"
    assert said in emu("show", "topology", "large.csv").err


def test_a_large_trace_is_announced_and_read(emu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    large(tmp_path / "large.trace", MOST_TEXT_BYTES + 1)
    done = emu("replay", "large.trace", *ON)
    assert "reading 'large.trace', 64 MB" in done.err
    assert "is no trace of this version" in done.err


def test_the_largest_text_is_announced_and_a_small_one_is_not(tmp_path, caplog):
    path = tmp_path / "x.toml"
    large(path, MOST_TEXT_BYTES)
    with caplog.at_level("INFO", "emu"):
        assert len(read_input("topology", path)) == MOST_TEXT_BYTES
        assert [record.getMessage() for record in caplog.records] == [f"reading {str(path)!r}, 64 MB"]
        path.write_bytes(b"a = 1")
        assert read_input("topology", path) == b"a = 1"
    assert len(caplog.records) == 1


def test_a_stream_without_a_size_is_not_read_beyond_the_limit():
    with pytest.raises(
        InputError, match=r"^topology: '/dev/zero' must have at most 64 MB, got more than 64 MB; take a smaller"
    ):
        read_input("topology", Path("/dev/zero"))


def test_no_other_module_opens_files_of_a_user():
    opens = re.compile(r"\.(read_text|read_bytes)\(|\.open\((encoding|\"r)|nx\.read_graphml\((?!io)")
    sources = (path for room in ("emu", "launch") for path in sorted((ROOT / room).rglob("*.py")))
    found = [str(path.relative_to(ROOT)) for path in sources if opens.search(path.read_text())]
    assert len(found) > 4
    assert [name for name in found if not name.startswith(OWN)] == []
