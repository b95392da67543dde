"""Errors about one task of a graph, told as what that task is to whoever made the graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emu.errors import InputError


class TaskError(InputError):
    """A graph that cannot be run for one of its tasks, which stands as `{}` in what is said."""

    def __init__(self, where: str, said: str, task: int) -> None:
        super().__init__(where, said, task)
        self.said, self.task = said, task

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.said.format(f'task {self.task}')}"


@contextmanager
def named(where: str, name: Callable[[int], str]) -> Iterator[None]:
    """Say of an error within what its task is, and begin with `where` instead of who found it.

    Raises:
        InputError: what was raised within about a task.
    """
    try:
        yield
    except TaskError as error:
        raise InputError(f"{where}: {error.said.format(name(error.task))}") from None
