"""A progress bar as it is drawn; loaded only where one is, for it takes a while."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def drawn(label: str, total: int | None, patience_s: float) -> Iterator[Callable[[], None]]:
    """A bar on stderr that shows after so many seconds; the function advances it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%" * bool(total)),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, visible=False)
        patience = threading.Timer(patience_s, lambda: progress.update(task, visible=True))
        patience.daemon = True
        patience.start()
        try:
            yield lambda: progress.advance(task)
        finally:
            patience.cancel()
