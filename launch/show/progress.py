"""A progress bar on stderr for what takes longer than two seconds; none where stderr is not a terminal."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")
PATIENCE_S = 2.0


@contextmanager
def bar(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar while the context lasts, advanced by the function that it gives; without a total it shows that time goes by."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%" * bool(total)),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, visible=False)
        patience = threading.Timer(PATIENCE_S, lambda: progress.update(task, visible=True))
        patience.daemon = True
        patience.start()
        try:
            yield lambda: progress.advance(task)
        finally:
            patience.cancel()


def tracked(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items, with a bar that each advances."""
    with bar(label, total) as advance:
        for item in items:
            yield item
            advance()
