"""What goes into a file that a person named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.errors import InputError


def check_folder(what: str, path: Path | None) -> None:
    """That the folder of a file is there, before anything is done that would be lost.

    Raises:
        InputError: it is not; as `writing` says it.
    """
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{what}: cannot write {str(path)!r}: its folder is not there")


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Write a file within; what the system refuses is one line that names `what` and the path.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: cannot write {str(path)!r}: {error.strerror}") from None
