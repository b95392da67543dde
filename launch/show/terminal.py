"""A progress bar on a terminal, drawn by rich.

The module is loaded only where a bar is shown, because rich takes a while to load.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from emu.study.choice.race_progress import RACE


class StateColumn(ProgressColumn):
    """A progress column that shows a text about the state of the work."""

    max_refresh = 1.0  # seconds between two questions

    def __init__(self, state: Callable[[], str]) -> None:
        super().__init__()
        self._state = state

    def render(self, task: Task) -> Text:
        """Return the cell."""
        return Text(self._state())


@contextmanager
def terminal_bar(
    label: str, total: int | None, state: Callable[[], str] | None, patience_s: float
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr while the context lasts, and yield the function that advances it.

    What the function is given to say is printed above the bar.

    Args:
        label: The text at the left of the bar.
        total: The number of advances that make the bar full; None shows a bar that only moves.
        state: A function that says in words how far the work is; None: the bar alone says it.
        patience_s: The bar appears after this time in seconds.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%" * bool(total)),
        TimeElapsedColumn(),
        *(StateColumn(told) for told in (state, RACE.text) if told),
    )

    def advance(known: str = "") -> None:
        if known and progress.tasks[task].visible:
            progress.console.print(known, highlight=False, markup=False)
        progress.advance(task)

    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, visible=False)
        patience = threading.Timer(patience_s, lambda: progress.update(task, visible=True))
        patience.daemon = True
        patience.start()
        try:
            yield advance
        finally:
            patience.cancel()
