"""What goes into a file that a person named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.errors import InputError


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
