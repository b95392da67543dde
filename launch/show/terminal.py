"""A progress bar on a terminal, drawn by rich.

The module is loaded only where a bar is shown, because rich takes a while to load.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

_log = logging.getLogger("emu")


class StateColumn(ProgressColumn):
    """The column that says how far the work is."""

    max_refresh = 1.0  # seconds between two questions

    def __init__(self, state: Callable[[], str]) -> None:
        super().__init__()
        self._state = state

    def render(self, task: Task) -> Text:
        """Return the cell."""
        return Text(self._state())


@dataclass
class TerminalBar:
    """A bar that is on the terminal."""

    progress: Progress
    task: TaskID

    def __call__(self) -> None:
        """Advance by one."""
        self.progress.advance(self.task)

    def tell(self, line: str) -> None:
        """Show a line above the bar, unless this is not shown yet."""
        if self.progress.tasks[0].visible:
            _log.info(line)


@contextmanager
def terminal_bar(label: str, total: int | None, state: Callable[[], str] | None, patience_s: float) -> Iterator[TerminalBar]:
    """Show a progress bar on stderr while the context lasts, and yield it.

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
        *([StateColumn(state)] if state else []),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, visible=False)
        patience = threading.Timer(patience_s, lambda: progress.update(task, visible=True))
        patience.daemon = True
        patience.start()
        try:
            yield TerminalBar(progress, task)
        finally:
            patience.cancel()
