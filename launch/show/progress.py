"""A progress bar on stderr for what takes longer than two seconds; none where stderr is not a terminal."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0


@contextmanager
def bar(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar while the context lasts, advanced by the function that it gives; without a total it shows that time goes by."""
    if not sys.stderr.isatty():
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
