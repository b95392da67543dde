"""Errors about one task of a graph, worded in the terms of the code that made the graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emu.errors import InputError


class TaskError(InputError):
    """The error of a graph that cannot be run because of one task; `{}` in the text stands for that task's name."""

    def __init__(self, where: str, said: str, task: int) -> None:
        super().__init__(where, said, task)
        self.said, self.task = said, task

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.said.format(f'task {self.task}')}"


@contextmanager
def name_tasks(where: str, name: Callable[[int], str]) -> Iterator[None]:
    """Reword errors about tasks that are raised within: begin with `where`, and call a task `name(task)`.

    Raises:
        InputError: An error about a task was raised within.
    """
    try:
        yield
    except TaskError as error:
        raise InputError(f"{where}: {error.said.format(name(error.task))}") from None
