"""The shell around questions: whether a command of the shell asks, or a program."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IN_SHELL: ContextVar[bool] = ContextVar("asked by a command", default=False)


def is_in_shell() -> bool:
    """Return whether a command asks, so that errors name options as the shell has them."""
    return _IN_SHELL.get()


@contextmanager
def in_shell() -> Iterator[None]:
    """Have errors name options as a command has them: `--global-batch` in place of `global_batch`."""
    before = _IN_SHELL.set(True)
    try:
        yield
    finally:
        _IN_SHELL.reset(before)
