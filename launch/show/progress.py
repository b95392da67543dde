"""What a command is doing, on stderr, if it takes longer than two seconds: a bar on a terminal, else a line."""

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
def told(label: str) -> Iterator[None]:
    """A line that says what is done, if the context lasts longer than two seconds."""
    patience = threading.Timer(PATIENCE_S, _log.info, (label,))
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


@contextmanager
def bar(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar while the context lasts, advanced by the function that it gives; without a total it shows that time goes by."""
    if not sys.stderr.isatty():
        with told(label):
            yield lambda: None
        return
    with importlib.import_module("launch.show.bar").drawn(label, total, PATIENCE_S) as advance:  # not above: it loads rich
        yield advance


def tracked(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items, with a bar that each advances."""
    with bar(label, total) as advance:
        for item in items:
            yield item
            advance()
