"""The context of a question: whether a shell command or a Python program asks it, for wording errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IN_SHELL: ContextVar[bool] = ContextVar("asked by a command", default=False)


def is_in_shell() -> bool:
    """Return whether a shell command asks the question, so that errors name options as in the shell."""
    return _IN_SHELL.get()


@contextmanager
def in_shell() -> Iterator[None]:
    """Make errors name options as in the shell (`--global-batch`) while the context lasts."""
    before = _IN_SHELL.set(True)
    try:
        yield
    finally:
        _IN_SHELL.reset(before)
