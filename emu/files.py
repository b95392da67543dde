"""Files and folders that a user names: they are read up to a size limit, checked early, and written atomically.

The bytes of an output go to a draft in the same folder, which takes the file's name once it is whole. A program that reads the
file meanwhile, or after a crash, sees the old file or the new one. A stream, such as /dev/stdout, /dev/null or a named pipe,
takes the bytes as they come.
"""

import logging
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from emu.errors import InputError, WriteError, must_be

MOST_TEXT_BYTES = 64 * 10**6  # largest file of text: TOML of this size takes a core about a minute
_TOLD_BYTES = 4 * 10**6  # from this size on, a line on stderr says what is read, as it takes some seconds
_log = logging.getLogger("emu")

DRAFT = ".emu-draft"  # suffix of a draft
_LONGEST = 20  # letters of the file's name in its draft's name: file systems allow some 140 bytes and more
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_DESCRIPTORS = r"/dev/fd|/proc/{}(/task/\d+)?/fd"  # folders of what a process has open
_MOST_LINKS = 40  # symbolic links that Linux follows


def read_input(what: str, path: Path, name: str = "", *, most: int | None = MOST_TEXT_BYTES, mend: str = "") -> bytes:
    """Return the bytes of a file that a user names; a large file is announced on stderr before it is read.

    Args:
        what: The option, or the subject of the file.
        path: The path of a file or a stream.
        name: The name of the file in messages; "": its path.
        most: The largest number of bytes; None: any, for files whose bytes are taken as they are.
        mend: What to do about a larger file.

    Raises:
        InputError: The file cannot be read, or has more bytes.
    """
    called = repr(name or str(path))
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _TOLD_BYTES and (most is None or size <= most):
                _log.info("reading %s, %s", called, _megabytes(size))
            data = b"" if most is not None and size > most else file.read(-1 if most is None else most + 1)
    except (OSError, ValueError) as error:  # a null character in the name
        raise InputError(f"{what}: cannot read {called}: {_reason(error)}") from None
    if most is not None and max(size, len(data)) > most:
        told = _megabytes(size) if size > most else f"more than {_megabytes(most)}"
        raise InputError(f"{what}: {called} must have at most {_megabytes(most)}, got {told}; {mend or 'take a smaller file'}")
    return data


def named_path(where: str, name: str, given: str | os.PathLike[str]) -> Path:
    """Return the path in an option or argument, after the check that it is not empty.

    Args:
        where: The command, for error messages.
        name: The option or the argument.
        given: The word.

    Raises:
        InputError: The word is empty, which as a path would be the current folder.
    """
    if os.fspath(given) == "":
        raise must_be(where, name, "a file or a folder", "", "name one; a dot is the current folder")
    return Path(given)


def has_ending(path: Path, *endings: str) -> bool:
    """Return whether a file name has one of the given endings, such as `.json`, in capitals or not."""
    return path.name.lower().endswith(endings)


def _megabytes(size: int) -> str:
    """Return a number of bytes as text, in megabytes."""
    return f"{size / 1e6:,.1f} MB".replace(".0 MB", " MB")


def check_file(what: str, path: Path) -> None:
    """Check that a file can be written to a path, without a change to a file that exists.

    Args:
        what: The option that names the path.
        path: The path of a file or a stream.

    Raises:
        InputError: Its folder does not exist or cannot be written, the path is a folder, or the file may not be changed.
    """
    try:
        why = _hindrance(path)
    except (OSError, ValueError) as error:  # a name that is too long, links in a circle, a null character
        why = f"{_reason(error)}; name another file"
    if why:
        raise InputError(f"{what}: cannot write {str(path)!r}: {why}")


def check_folder(what: str, path: Path) -> None:
    """Check that a path is a folder that can be written, or that such a folder can be created.

    Args:
        what: The option that names the path.
        path: The path of a folder.

    Raises:
        InputError: A file is in its place or above it, or the folder cannot be written.
    """
    there = next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
    try:
        why = _refusal(there, path.name) if there.is_dir() else f"{str(there)!r} is no folder"
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, ValueError) as error:  # as of a file
        why = _reason(error)
    if why:
        raise InputError(f"{what}: cannot write to {str(path)!r}: {why}; name another folder")


def make_folder(what: str, path: Path) -> None:
    """Create a folder and its missing parents.

    Raises:
        WriteError: It cannot be created.
    """
    with _telling(what, path):
        path.mkdir(parents=True, exist_ok=True)


def write_file(what: str, path: Path, data: bytes) -> None:
    """Write a whole file atomically; if that fails, an older file of that name stays as it was.

    Args:
        what: The option that names the path.
        path: The path of a file, of a stream, or of a symbolic link; a link stays one, and its target is written.
        data: The content.

    Raises:
        WriteError: It cannot be written.
    """
    with _telling(what, path):
        if is_stream(path):
            with _stream(path) as stream:
                stream.write(data)
        else:
            replace_file(Path(os.path.realpath(path)), data)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace the content of a file atomically; on an error the old content stays.

    Args:
        path: The path of a plain file; a file that is there keeps its mode and its owner.
        data: The content.
        mode: The mode of a new file, before the umask.

    Raises:
        OSError: The folder or the disk refuses the file.
    """
    draft = _draft_of(path.parent, path.name)
    with _removed(draft):
        with os.fdopen(_created(draft, mode), "wb") as file:
            file.write(data)
        with suppress(FileNotFoundError):  # a new file
            _take_after(path, draft)
        draft.replace(path)


def is_stream(path: Path) -> bool:
    """Return whether a path leads to a stream (a device or a pipe) or to a file that this process has open.

    Raises:
        OSError: Links form a cycle, or a folder on the way cannot be read.
    """
    if _descriptor(path) is not None:
        return True
    try:
        kind = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)


def _hindrance(path: Path) -> str:
    """Return the reason why a file cannot be written, and how to mend that; "" if it can be written."""
    if is_stream(path):
        return "" if os.access(path, os.W_OK) else "it takes no bytes; name another file"
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder; name a file in it"
    if not target.parent.is_dir():
        is_file = f"{str(path.parent)!r} is no folder; name another file"
        return is_file if target.parent.exists() else "its folder is not there; make the folder, or name another file"
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        return "the file that is there may not be changed; name another file"
    why = _refusal(target.parent, target.name)
    return f"its folder cannot be written ({why}); name a file in another folder" if why else ""


def _refusal(folder: Path, name: str) -> str:
    """Return the system's reason why no file can be created in a folder; "" if one can.

    A draft is made to find out: nothing else works on every file system.
    """
    draft = _draft_of(folder, name)
    try:
        with _removed(draft):
            os.close(_created(draft, 0o600))
    except OSError as error:
        return _reason(error)
    return ""


def _stream(path: Path) -> IO[bytes]:
    """Open a stream for writing; a file that this process has open continues at its position."""
    number = _descriptor(path)
    if number is None:
        return path.open("wb")
    sys.stdout.flush()
    return os.fdopen(os.dup(number), "wb")


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of the open file that a path such as /dev/stdout leads to; None if it is another kind of path."""
    own = _DESCRIPTORS.format(os.getpid())
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and re.fullmatch(own, os.path.realpath(path.parent)):
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _draft_of(folder: Path, name: str) -> Path:
    """Return a new name for the draft of a file, in the file's folder."""
    return folder / f"{name[:_LONGEST]}-{secrets.token_hex(4)}{DRAFT}"


def _created(draft: Path, mode: int) -> int:
    """Return the descriptor of a new file to write; an existing file is an error."""
    return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)


def _take_after(path: Path, draft: Path) -> None:
    """Give a draft the owner and the mode of the file that it will replace, as far as the system allows."""
    there = path.stat()
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(draft, there.st_uid, there.st_gid)
    shutil.copymode(path, draft)


@contextmanager
def _removed(draft: Path) -> Iterator[None]:
    """Remove a draft when the context ends, also on an error, on Ctrl-C, or on a signal that ends the process."""

    def remove() -> None:
        with suppress(OSError, ValueError):  # it was never made, or its folder is gone
            draft.unlink()

    with _before_the_end(remove):
        try:
            yield
        finally:
            remove()


_FIRST = threading.main_thread()


@contextmanager
def _before_the_end(act: Callable[[], None]) -> Iterator[None]:
    """Call a function before a signal ends the process, while the context lasts; handlers of the program stay."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        act()
        os.kill(os.getpid(), number)

    main = threading.get_ident() == _FIRST.ident  # only this thread may have handlers; ranks see another main thread
    caught = [number for number in _ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in caught:
            signal.signal(number, end)
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _telling(what: str, path: Path) -> Iterator[None]:
    """Turn a system error within the context into a WriteError with a one-line message."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{what}: cannot write {str(path)!r}: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    """Return the reason that the operating system gives for an error, as text."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
