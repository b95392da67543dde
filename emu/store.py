"""Files that Emu stores for itself between commands: in the user's cache folder, up to a number of bytes of each kind.

A file is named by the digest of what it was made from. So it never goes stale, two processes that write the same file write the
same bytes, and any file may be deleted at any time. Files are read only where no other user can have written them.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.files import replace_file

_CHECK_BYTES = 16  # in front of each file


def _check(data: bytes) -> bytes:
    """Return the digest that tells whether stored bytes are whole."""
    return hashlib.blake2b(data, digest_size=_CHECK_BYTES).digest()


def user_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the folder for a program's cache on this platform; XDG_CACHE_HOME overrides it on every platform."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is none
    places = {"darwin": home / "Library" / "Caches", "win32": Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")}
    return Path(environ.get("XDG_CACHE_HOME") or places.get(platform, home / ".cache")) / "emu"


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each for this user alone.

    Raises:
        OSError: one cannot be made.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def exposure(folder: Path) -> str:
    """Return the way in which others than the user and root could change the content of a folder; "" where they could not.

    The folder must be the user's, and nobody else may write it or replace it. The folders above must be the user's or the owner
    of /'s, and others may not write them, but for one such as /tmp, where nobody can replace another's files.
    """
    if sys.platform == "win32":  # where a user's folders are the user's alone, and modes say nothing
        return ""
    whole = folder.resolve()
    owners, sticky = {os.geteuid()}, 0
    try:
        for each in (whole, *whole.parents):
            found = each.stat()
            if found.st_uid not in owners:
                return f"{each} is of another user"
            if _others_write(found) and not found.st_mode & sticky:
                return f"others may write {each}: chmod go-w it"
            owners, sticky = {os.geteuid(), Path(whole.anchor).stat().st_uid}, stat.S_ISVTX
    except OSError as error:
        return str(error)
    return ""


def _others_write(found: os.stat_result) -> bool:
    """Return whether others than the owner may write; a group with the owner alone, as many systems make, is not others."""
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bool(writers) and not (writers == stat.S_IWGRP and _is_own_group(found.st_gid))


def _is_own_group(gid: int) -> bool:
    """Return whether a group has the user's name and nobody else in it; never for root."""
    import grp  # Windows has neither
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    names = {group.gr_name, *group.gr_mem}
    return user.pw_uid != 0 and user.pw_gid == gid and names == {user.pw_name}


@dataclass(frozen=True)
class Store:
    """A folder of files; the least recently used files are deleted when there are more than `most_bytes`."""

    folder: Path
    most_bytes: int

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it cannot be read, is damaged, or others can have written it."""
        try:
            with (self.folder.resolve() / name).open("rb") as file:
                if not self._is_own(os.fstat(file.fileno())):
                    return None
                stored = file.read()
        except OSError:
            return None
        self._touch(name)
        data = stored[_CHECK_BYTES:]
        return data if stored[:_CHECK_BYTES] == _check(data) else None

    def write(self, name: str, data: bytes) -> None:
        """Write a file at once: a program that reads it meanwhile sees all of it or nothing.

        Raises:
            OSError: The folder cannot be made or written, or others could change its content.
        """
        make_private(self.folder)
        if why := exposure(self.folder):
            raise PermissionError(why)
        replace_file(self.folder / name, _check(data) + data, 0o600)
        self._make_room()

    def _is_own(self, found: os.stat_result) -> bool:
        """Return whether nobody else can have written an open file, nor the names in its folder."""
        if sys.platform == "win32":
            return True
        return found.st_uid == os.geteuid() and not _others_write(found) and not exposure(self.folder)

    def _touch(self, name: str) -> None:
        """Note that a file was used; this may fail where the folder cannot be written."""
        try:
            os.utime(self.folder / name)
        except OSError:
            return

    def _make_room(self) -> None:
        """Delete the least recently used files beyond the limit, and unfinished drafts with them."""
        total = 0
        for _, size, path in sorted(self._files(), reverse=True):
            total += size
            if total > self.most_bytes:
                Path(path).unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, str]]:
        """Return the time of use, the bytes and the path of each file, without files that another process deletes right now."""
        files = []
        with os.scandir(self.folder) as found:
            for file in found:
                try:
                    stat = file.stat()
                except OSError:
                    continue
                files.append((stat.st_mtime, stat.st_size, file.path))
        return files
