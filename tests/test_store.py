"""Values kept between commands are found again, whole, bounded, in the folder that the user's platform has for it."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.store import Store, ValueTable, user_folder


def store(tmp_path: Path, most_bytes: int = 1000) -> Store:
    return Store(tmp_path / "new" / "folder", most_bytes)


def test_what_was_written_is_read_and_what_was_not_is_not_there(tmp_path: Path) -> None:
    kept = store(tmp_path)
    assert kept.read("a") is None
    kept.write("a", b"one")
    kept.write("a", b"two")
    kept.write("b", b"")
    assert (kept.read("a"), kept.read("b"), kept.read("c")) == (b"two", b"", None)
    assert sorted(path.name for path in kept.folder.iterdir()) == ["a", "b"]


def test_what_was_of_use_least_recently_makes_room(tmp_path: Path) -> None:
    kept = store(tmp_path)
    for i, name in enumerate("abc"):
        kept.write(name, bytes(300))
        os.utime(kept.folder / name, (i, i))
    assert kept.read("a") is not None  # and so it is of use now
    kept.write("d", bytes(300))
    assert [name for name in "abcd" if kept.read(name) is not None] == ["a", "c", "d"]


def test_a_file_of_more_than_there_is_room_for_is_not_kept(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.write("large", bytes(1001))
    assert kept.read("large") is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"!", lambda data: b"!" + data[1:], lambda _: b""]
)
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    kept = store(tmp_path)
    kept.write("a", b"one")
    (kept.folder / "a").write_bytes(damage((kept.folder / "a").read_bytes()))
    assert kept.read("a") is None
    kept.write("a", b"one")
    assert kept.read("a") == b"one"


def test_a_folder_that_cannot_be_made_is_an_os_error_to_write_and_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("a file, not a folder")
    assert store(tmp_path).read("a") is None
    with pytest.raises(OSError, match="new"):
        store(tmp_path).write("a", b"one")


def test_a_file_is_whole_whoever_writes_it_meanwhile(tmp_path: Path) -> None:
    kept = store(tmp_path, 10**8)
    kept.write("a", b"x" * 10**6)
    code = (
        "import sys\nfrom pathlib import Path\nfrom emu.store import Store\n"
        "for letter in b'xyz' * 20:\n    Store(Path(sys.argv[1]), 10**8).write('a', bytes([letter]) * 10**6)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(kept.folder)]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        data = kept.read("a")
        assert data is not None
        assert len(data) == 10**6
        assert len(set(data)) == 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [path.name for path in kept.folder.iterdir()] == ["a"]


def test_folders_that_are_made_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store(tmp_path).write("a", b"one")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", tmp_path / "new" / "folder")] == [0o700] * 2


@pytest.mark.parametrize(
    ("at", "mode", "is_own"),
    [
        ("new/folder", 0o755, True),
        ("new/folder", 0o702, False),
        ("new/folder", 0o1777, False),
        ("new/folder/a", 0o644, True),
        ("new/folder/a", 0o602, False),
        ("new", 0o702, False),
        ("new", 0o1777, True),  # as /tmp: others add to it, and replace nothing
        (".", 0o702, False),
    ],
)
def test_what_others_may_change_is_not_read(tmp_path: Path, at: str, mode: int, is_own: bool) -> None:
    kept = store(tmp_path)
    kept.write("a", b"one")
    (tmp_path / at).chmod(mode)
    assert kept.read("a") == (b"one" if is_own else None)
    (tmp_path / at).chmod(0o700)
    assert kept.read("a") == b"one"


def test_what_another_user_has_is_not_read_and_nothing_is_kept_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store(tmp_path)
    kept.write("a", b"one")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert kept.read("a") is None
    with pytest.raises(PermissionError, match=f"^{kept.folder} is of another user$"):
        kept.write("a", b"two")


@pytest.mark.parametrize(("others", "is_own"), [([], True), (["me"], True), (["me", "you"], False)])
def test_a_group_that_has_the_user_alone_is_not_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str], is_own: bool
) -> None:
    kept = store(tmp_path)
    kept.write("a", b"one")
    kept.folder.chmod(0o770)
    gid = kept.folder.stat().st_gid
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_uid=1000, pw_gid=gid, pw_name="me"))
    monkeypatch.setattr("grp.getgrgid", lambda _: SimpleNamespace(gr_name="me", gr_mem=others))
    assert (kept.read("a") == b"one") == is_own


def test_what_is_reached_by_a_link_is_judged_where_it_is(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.write("a", b"one")
    (tmp_path / "link").symlink_to(kept.folder)
    assert Store(tmp_path / "link", 1000).read("a") == b"one"
    (tmp_path / "new").chmod(0o707)
    assert Store(tmp_path / "link", 1000).read("a") is None


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {}, "~/.cache/emu"),
        ("darwin", {}, "~/Library/Caches/emu"),
        ("win32", {}, "~/AppData/Local/emu"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/emu"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/emu"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/emu"),
        ("linux", {"XDG_CACHE_HOME": ""}, "~/.cache/emu"),
    ],
)
def test_the_folder_is_the_one_that_the_platform_has_for_caches(platform: str, environ: dict[str, str], folder: str) -> None:
    assert user_folder(environ, platform) == Path(folder).expanduser()


def test_a_new_table_waits_for_another_process_that_sets_it_up(tmp_path: Path) -> None:
    """SQLite refuses at once, without its own waiting, to change the mode of a journal while another connection writes."""
    other = sqlite3.connect(tmp_path / "new.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ends = threading.Timer(0.2, lambda: other.execute("COMMIT"))
    ends.start()
    table = ValueTable(tmp_path / "new.sqlite")
    table.write("key", 1)
    ends.join()
    assert table.read("key") == 1
    table.close()
    other.close()
