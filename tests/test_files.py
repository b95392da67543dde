"""Files that a person named: refused before anything is computed, and written whole or not at all."""

import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from emu.errors import InputError, WriteError
from emu.files import DRAFT, check_file, check_folder, is_stream, make_folder, write_file
from tests.full import full_disk

linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="without /proc")
MEGABYTE = 1_000_000


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_written_again_with_nothing_beside_it(tmp_path: Path) -> None:
    for data in (b"first", b"", b"second"):
        write_file("--png", tmp_path / "a.png", data)
        assert (tmp_path / "a.png").read_bytes() == data
    assert names(tmp_path) == ["a.png"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_that_open_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "by_open").write_bytes(b"")
        write_file("--png", tmp_path / "ours", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "by_open").stat().st_mode


def test_an_older_file_keeps_its_mode_and_its_owner(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(tmp_path / "a", 1234, 4321)
    before = (tmp_path / "a").stat()
    write_file("--png", tmp_path / "a", b"new")
    after = (tmp_path / "a").stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    if there:
        (tmp_path / "far" / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(Path("far") / "target")
    check_file("--png", tmp_path / "link")
    write_file("--png", tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "target").read_bytes() == b"new"
    assert names(tmp_path / "far") == ["target"]


def test_a_named_pipe_takes_the_bytes_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_file("--csv", tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    write_file("--csv", tmp_path / "pipe", b"x" * MEGABYTE)
    reader.join(30)
    assert read == [b"x" * MEGABYTE]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_device_takes_the_bytes_and_stays_a_device() -> None:
    check_file("--csv", Path("/dev/null"))
    write_file("--csv", Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@linux
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_stdout_that_goes_to_a_file_goes_on_in_it(tmp_path: Path, path: str, mode: str) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = (
        "import sys\nfrom pathlib import Path\nfrom emu.files import check_file, write_file\n"
        "path = Path(sys.argv[1])\ncheck_file('--csv', path)\n"
        "print('before')\nwrite_file('--csv', path, b'bytes\\n')\nprint('after')\n"
    )
    with (tmp_path / "out").open(mode) as out:
        subprocess.run([sys.executable, "-c", code, path], stdout=out, check=True, timeout=60, cwd=tmp_path)
    assert (tmp_path / "out").read_text() == "before\nbytes\nafter\n"
    assert names(tmp_path) == ["link", "out"]


@pytest.mark.parametrize("most_bytes", [0, 1000, MEGABYTE - 1])
@pytest.mark.parametrize("old", [None, b"what was there"])
def test_on_a_full_disk_the_older_file_stays_as_it_was(tmp_path: Path, most_bytes: int, old: bytes | None) -> None:
    if old is not None:
        (tmp_path / "a").write_bytes(old)
    with full_disk(most_bytes), pytest.raises(WriteError) as refused:
        write_file("--html", tmp_path / "a", b"x" * MEGABYTE)
    assert str(refused.value) == f"--html: cannot write {str(tmp_path / 'a')!r}: File too large"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([] if old is None else [old])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="without /dev/full")
def test_a_device_that_is_full_is_an_error() -> None:
    with pytest.raises(WriteError, match=r"--html: cannot write '/dev/full': No space left on device"):
        write_file("--html", Path("/dev/full"), b"x")


def test_a_folder_that_went_meanwhile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    check_file("--html", tmp_path / "gone" / "a")
    (tmp_path / "gone").rmdir()
    with pytest.raises(WriteError, match=r"--html: cannot write '.*a': No such file or directory"):
        write_file("--html", tmp_path / "gone" / "a", b"x")
    with pytest.raises(WriteError, match=r"--docs: cannot write '/dev/null/x': Not a directory"):
        make_folder("--docs", Path("/dev/null/x"))


def test_signals_mean_what_they_meant_however_writing_ends(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    before = signal.getsignal(signal.SIGTERM)
    write_file("--html", tmp_path / "a", b"x")
    assert signal.getsignal(signal.SIGTERM) is before
    for where, why in (("none", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(WriteError, match=why):
            write_file("--html", tmp_path / where / "a", b"x")
        assert signal.getsignal(signal.SIGTERM) is before
    for check in (check_file, check_folder):
        with pytest.raises(InputError):
            check("--html", tmp_path / "null\0")
        assert signal.getsignal(signal.SIGTERM) is before


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        check_file("--png", path)
    line = str(refused.value)
    assert line.startswith(f"--png: cannot write {str(path)!r}: ")
    return line.removeprefix(f"--png: cannot write {str(path)!r}: ")


def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "circle").symlink_to("circle")
    assert refusal(tmp_path / "none" / "x.png") == "its folder is not there; make the folder, or name another file"
    assert refusal(tmp_path / "file" / "x.png") == f"{str(tmp_path / 'file')!r} is no folder; name another file"
    assert refusal(tmp_path) == "it is a folder; name a file in it"
    assert refusal(tmp_path / ("x" * 300)) == "File name too long; name another file"
    assert refusal(tmp_path / "circle") == "Too many levels of symbolic links; name another file"
    assert refusal(tmp_path / "null\0") == "embedded null byte; name another file"
    assert names(tmp_path) == ["circle", "file"]
    assert (tmp_path / "file").read_bytes() == b"old"


@linux
def test_a_folder_that_takes_no_file_is_refused_whoever_asks() -> None:
    assert refusal(Path("/proc/x.png")).startswith("its folder cannot be written (")
    with pytest.raises(InputError, match=r"--checkpoint: cannot write to '/proc/x/y': .*; name another folder"):
        check_folder("--checkpoint", Path("/proc/x/y"))
    assert refusal(Path("/proc/self/fd/999")) == "it takes no bytes; name another file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_or_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"old")
    (tmp_path / "a.png").chmod(0o444)
    assert refusal(tmp_path / "a.png") == "the file that is there may not be changed; name another file"
    tmp_path.chmod(0o555)
    try:
        assert refusal(tmp_path / "b.png") == "its folder cannot be written (Permission denied); name a file in another folder"
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_is_refused_where_a_file_is_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    check_folder("--docs", tmp_path / "new" / "deep")
    for path in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(InputError) as refused:
            check_folder("--docs", path)
        said = f"{str(tmp_path / 'file')!r} is no folder; name another folder"
        assert str(refused.value) == f"--docs: cannot write to {str(path)!r}: {said}"
    for path, why in ((tmp_path / ("x" * 300), "File name too long"), (tmp_path / "null\0", "embedded null byte")):
        with pytest.raises(InputError, match=f"{why}; name another folder"):
            check_folder("--docs", path)
    assert names(tmp_path) == ["file"]


def test_a_plain_file_is_no_stream(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"")
    assert [is_stream(tmp_path / name) for name in ("1", "none", "1/x")] == [False] * 3


WRITER = """
import sys
from pathlib import Path
from emu.files import write_file
print(flush=True)
for letter in b"ab" * 100_000:
    write_file("--trace", Path("x.trace"), bytes([letter]) * 3_000_000)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_process_that_ends_while_it_writes_leaves_a_whole_file(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "x.trace").write_bytes(b"a" * 3_000_000)
    draw = random.Random(number)
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], stdout=-1, stderr=subprocess.DEVNULL, cwd=tmp_path)
        with writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(draw.random() / 20)
            writer.send_signal(number)
            writer.wait(60)
        assert writer.returncode == -number
        left = (tmp_path / "x.trace").read_bytes()
        assert len(left) == 3_000_000
        assert left in (b"a" * len(left), b"b" * len(left))
        beside = [name for name in names(tmp_path) if name != "x.trace"]
        assert all(name.startswith("x.trace-") and name.endswith(DRAFT) for name in beside)
        assert number == signal.SIGKILL or not beside
