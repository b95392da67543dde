"""Progress of a command on stderr, after two seconds: a bar on a terminal, else lines."""

import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0
SILENCE_S = 5.0  # after which a line says how far the work is
_log = logging.getLogger("emu")


class ProgressDisplay(Protocol):
    """Progress that is shown on a terminal or a pipe."""

    def __call__(self) -> None:
        """Advance by one."""

    def tell(self, line: str) -> None:
        """Show a line at once, unless the work has only begun."""


class ProgressLines:
    """The progress of one part of the work as lines: its label, and how far it is wherever nothing was said for a while.

    Args:
        label: The name of the part.
        total: The number of advances; None: it is not known.
        state: A function that says how far the work is; None: the number of advances says it.
    """

    def __init__(self, label: str, total: int | None, state: Callable[[], str] | None) -> None:
        self._label, self._state, self._done = label, state or (self._count if total else None), 0
        self._total, self._said_s, self._ended = total or 0, float("inf"), threading.Event()

    def __enter__(self) -> "ProgressLines":
        """Begin to wait."""
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Say nothing any more."""
        self._ended.set()

    def __call__(self) -> None:
        """Advance by one."""
        self._done += 1

    def tell(self, line: str) -> None:
        """Show a line at once, unless the work has only begun."""
        if self._said_s < float("inf"):
            self._say(line)

    def _say(self, line: str) -> None:
        """Log a line."""
        self._said_s = time.monotonic()
        _log.info(line)

    def _count(self) -> str:
        """Return how far the work is by its advances."""
        return f"{self._label}: {self._done:,} of {self._total:,}"

    def _watch(self) -> None:
        """Say how far the work is, until it ends."""
        if self._ended.wait(PATIENCE_S):
            return
        self._say(self._label)
        while self._state and not self._ended.wait(max(0.0, self._said_s + SILENCE_S - time.monotonic())):
            if time.monotonic() >= self._said_s + SILENCE_S:
                self._say(self._state())


@contextmanager
def late_notice(label: str) -> Iterator[None]:
    """Log the label once if the context lasts longer than two seconds."""
    with ProgressLines(label, None, None):
        yield


@contextmanager
def progress_bar(label: str, total: int | None = None, state: Callable[[], str] | None = None) -> Iterator[ProgressDisplay]:
    """Show a progress bar while the context lasts, and yield the function that advances it by one.

    Where stderr is no terminal, lines are logged in place of the bar.

    Args:
        label: The text at the left of the bar.
        total: The number of advances that make the bar full; None shows a bar that only moves.
        state: A function that says in words what is done and what is left; None: the number of advances says it.
    """
    if not sys.stderr.isatty():
        with ProgressLines(label, total, state) as lines:
            yield lines
        return
    with importlib.import_module("launch.show.terminal").terminal_bar(
        label, total, state, PATIENCE_S
    ) as bar:  # not above: it loads rich
        yield bar


def with_progress(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield the items one by one, and advance a progress bar after each."""
    with progress_bar(label, total) as advance:
        for item in items:
            yield item
            advance()
