"""Files that Emu keeps for itself between commands: in the user's cache folder, no more than so many bytes of a kind.

A file is named by the digest of what it was made from. So it never goes stale, two processes that write the same one write the
same bytes, and any file may be deleted at any time.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.files import replace_file

_CHECK_BYTES = 16  # in front of each file


def _check(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK_BYTES).digest()


def user_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where this platform wants a program's cache; XDG_CACHE_HOME says otherwise on any of them."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is none
    places = {"darwin": home / "Library" / "Caches", "win32": Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")}
    return Path(environ.get("XDG_CACHE_HOME") or places.get(platform, home / ".cache")) / "emu"


@dataclass(frozen=True)
class Store:
    """A folder of files, of which those read or written least recently go when there are more than `most_bytes`."""

    folder: Path
    most_bytes: int

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none that can be read, or a damaged one."""
        try:
            stored = (self.folder / name).read_bytes()
        except OSError:
            return None
        self._touch(name)
        data = stored[_CHECK_BYTES:]
        return data if stored[:_CHECK_BYTES] == _check(data) else None

    def write(self, name: str, data: bytes) -> None:
        """Put a file there at once: who reads it meanwhile sees all of it or nothing.

        Raises:
            OSError: the folder cannot be made or written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / name, _check(data) + data, 0o600)
        self._make_room()

    def _touch(self, name: str) -> None:
        """Remember that a file was of use; nobody need be able to write the folder for that."""
        try:
            os.utime(self.folder / name)
        except OSError:
            return

    def _make_room(self) -> None:
        """Delete the files of least recent use, beyond the bytes that there may be; also drafts that nobody finished."""
        total = 0
        for _, size, path in sorted(self._files(), reverse=True):
            total += size
            if total > self.most_bytes:
                Path(path).unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, str]]:
        """When each file was of use, its bytes, its path; without those that another process deletes right now."""
        files = []
        with os.scandir(self.folder) as found:
            for file in found:
                try:
                    stat = file.stat()
                except OSError:
                    continue
                files.append((stat.st_mtime, stat.st_size, file.path))
        return files
