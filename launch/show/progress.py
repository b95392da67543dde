"""A progress bar on stderr for what takes longer than two seconds; none where stderr is not a terminal."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")
PATIENCE_S = 2.0


def tracked(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items, with a bar once two seconds have passed."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=False) as bar:
        task = bar.add_task(label, total=total, visible=False)
        for item in items:
            yield item
            bar.update(task, advance=1, visible=time.monotonic() - began > PATIENCE_S)
