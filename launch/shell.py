"""The context of a question: whether a shell command or a Python program asks it, for wording errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IN_SHELL: ContextVar[bool] = ContextVar("asked by a command", default=False)


def is_in_shell() -> bool:
    """Return whether a shell command asks the question, so that errors name options as in the shell."""
    return _IN_SHELL.get()


def setting_text(name: str, value: object = True) -> str:
    """Return a setting as the asker writes it: `--bounds all` in the shell, `bounds='all'` in Python.

    Args:
        name: The name of the argument; its option has hyphens.
        value: The value; True: the option has none.
    """
    if not is_in_shell():
        return f"{name}={value!r}"
    return f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}"


def output_text(option: str) -> str:
    """Return what wrote a file, for errors: the option in the shell, `save` in Python."""
    return option if is_in_shell() else "save"


@contextmanager
def in_shell() -> Iterator[None]:
    """Make errors name options as in the shell (`--global-batch`) while the context lasts."""
    before = _IN_SHELL.set(True)
    try:
        yield
    finally:
        _IN_SHELL.reset(before)
