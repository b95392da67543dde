"""Progress of a command on stderr, after two seconds: a bar on a terminal, else a line."""

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0
_log = logging.getLogger("emu")


@contextmanager
def late_notice(label: str) -> Iterator[None]:
    """Log the label once if the context lasts longer than two seconds."""
    patience = threading.Timer(PATIENCE_S, _log.info, (label,))
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


@contextmanager
def progress_bar(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a progress bar while the context lasts, and yield the function that advances it by one.

    Where stderr is no terminal, a line is logged in place of the bar.

    Args:
        label: The text at the left of the bar.
        total: The number of advances that make the bar full; None shows a bar that only moves.
    """
    if not sys.stderr.isatty():
        with late_notice(label):
            yield lambda: None
        return
    with importlib.import_module("launch.show.terminal").terminal_bar(
        label, total, PATIENCE_S
    ) as advance:  # not above: it loads rich
        yield advance


def with_progress(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield the items one by one, and advance a progress bar after each."""
    with progress_bar(label, total) as advance:
        for item in items:
            yield item
            advance()
