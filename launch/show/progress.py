"""Progress of long operations: silent by default, on stderr for the command line, or by a user's callback.

On a terminal it is a bar, with the rows that are known above it. Elsewhere it is a line for each row that is known, and a line
whenever nothing was said for three seconds, so that a busy machine is not silent for more than five; where algorithms are
raced, it names the one that is timed. Nothing is shown in the first two seconds of an operation, but where three seconds have
passed since the last line of an earlier operation.
"""

import importlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from emu.study.choice.race_progress import RACE
from launch.show.row_file import row_known

T = TypeVar("T")
PATIENCE_S = 2.0
_UNFINISHED = "emu_unfinished"  # attribute of the error of Ctrl-C
SILENCE_S = 3.0  # the time after which a line is due
_log = logging.getLogger("emu")
Advance = Callable[..., None]  # takes what is known now in a few words, or nothing
State = Callable[[], str] | None  # says in words what is done and what is left; None: the number of advances says it
Reporter = Callable[[str, int | None, State], AbstractContextManager[Advance]]  # (label, number of advances or None, state)


def _silent(label: str, total: int | None, state: State) -> AbstractContextManager[Advance]:
    """Report no progress."""
    return nullcontext(lambda *_: None)


_REPORTER: ContextVar[Reporter] = ContextVar("reporter", default=_silent)


@contextmanager
def progress(report: Callable[[str, int, int | None], None]) -> Iterator[None]:
    """Call a function with the progress of operations within the context.

    Of a search the label has what is known so far, too. It is reported every three seconds, by another thread.

    Args:
        report: A function of the label of what is done, the number of its parts that are done, and the number of all of them;
            None: their number is unknown.
    """

    @contextmanager
    def reporter(label: str, total: int | None, state: State) -> Iterator[Advance]:
        done, known_now = 0, state if total is None else None

        def tell() -> None:
            report(f"{label}: {known_now()}" if known_now else label, done, total)

        def advance(known: str = "") -> None:
            nonlocal done
            done += 1
            tell()

        report(label, 0, total)
        with _regularly(tell) if known_now else nullcontext():
            yield advance

    before = _REPORTER.set(reporter)
    try:
        yield
    finally:
        _REPORTER.reset(before)


@contextmanager
def _regularly(tell: Callable[[], None]) -> Iterator[None]:
    """Call a function every three seconds while the context lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SILENCE_S):
            tell()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def show_on_stderr() -> None:
    """Show progress on stderr from now on, as the command line does."""
    _REPORTER.set(_on_stderr)
    _ProgressLines.last_line_s = math.inf


@contextmanager
def late_notice(label: str) -> Iterator[None]:
    """Log the label once when the context has lasted two seconds, if it still lasts."""
    patience = threading.Timer(PATIENCE_S, _log.info, (label,))
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


def progress_bar(label: str, total: int | None = None, state: State = None) -> AbstractContextManager[Advance]:
    """Report progress while the context lasts, and yield the function that advances it by one.

    Args:
        label: The text that says what is done.
        total: The number of advances that make it full; None: unknown.
        state: A function that says in words what is done and what is left; None: the number of advances says it.
    """
    return _REPORTER.get()(label, total, state)


def _on_stderr(label: str, total: int | None, state: State) -> AbstractContextManager[Advance]:
    """Show a bar on a terminal; elsewhere, log lines."""
    if not sys.stderr.isatty():
        return _logged(label, total, state)
    bar = importlib.import_module("launch.show.terminal").terminal_bar  # not above: it loads rich
    shown: AbstractContextManager[Advance] = bar(label, total, state, PATIENCE_S)
    return shown


@contextmanager
def _logged(label: str, total: int | None, state: State) -> Iterator[Advance]:
    """Log a line for each advance with a text, and at least every three seconds."""
    lines, over = _ProgressLines(label, total, state), threading.Event()
    watcher = threading.Thread(target=lines.watch, args=(over,), daemon=True)
    watcher.start()
    try:
        yield lines.advance
    finally:
        over.set()
        watcher.join()


class _ProgressLines:
    """The progress lines of one operation; the first is due after two seconds, or three seconds after the last line of another.

    Args:
        label: The text that says what is done.
        total: The number of its parts; None: unknown.
        state: A function that says in words how far it is; None: the number of its parts says it.
    """

    last_line_s = math.inf  # when any operation logged its last line; infinite: none did

    def __init__(self, label: str, total: int | None, state: State) -> None:
        self._label, self._total, self._state, self._done = label, total, state, 0
        self._lock, self._began_s = threading.Lock(), time.monotonic()
        self._first_s = min(self._began_s + PATIENCE_S, max(self._began_s, _ProgressLines.last_line_s + SILENCE_S))
        self._next_s = self._first_s  # when a line is due

    def advance(self, known: str = "") -> None:
        """Count one more job as done, and log `known`, a text on its result, if it is not empty."""
        with self._lock:
            self._done += 1
            if known and time.monotonic() >= self._first_s:
                self._log_line(f": {known}")

    def watch(self, over: threading.Event) -> None:
        """Log a line whenever one is due, until the operation is over."""
        while not over.wait(max(0.0, self._next_s - time.monotonic())):
            with self._lock:
                if time.monotonic() >= self._next_s:
                    racing = f"; {told}" if (told := RACE.text()) else ""
                    self._log_line((f": {self._state()}" if self._state else self._elapsed_text()) + racing)

    def _elapsed_text(self) -> str:
        """Return the time since the display began, such as `: 12 s so far`; an empty text in the first three seconds."""
        took_s = time.monotonic() - self._began_s
        return "" if took_s < SILENCE_S else f": {took_s:.0f} s so far"

    def _log_line(self, known: str) -> None:
        """Log a line with the label, the number of jobs done, and the text `known`."""
        count = "" if self._total is None or not self._done else f": {self._done} of {self._total}"
        _log.info(self._label + count + known)
        _ProgressLines.last_line_s = time.monotonic()
        self._next_s = _ProgressLines.last_line_s + SILENCE_S


def itself(item: T) -> T:
    """Return the item itself, as the text function of `with_progress` for items that are rows."""
    return item


def with_progress(
    items: Iterable[T],
    label: str,
    total: int,
    known: Callable[[T], str] = lambda _: "",
    row: Callable[[T], object] | None = None,
    state: State = None,
) -> Iterator[T]:
    """Yield the items one by one, and report the progress after each.

    Args:
        items: What is computed, one after another.
        label: The text that says what is done.
        total: The number of items.
        known: What a person wants to know of an item at once, in a few words.
        row: The row of the answer that an item is, for `--out`; None: it is none.
        state: A function that says in words what is done meanwhile; None: the number of items says it.
    """
    with progress_bar(label, total, state) as advance:
        for item in items:
            if row is not None:
                row_known(row(item))
            yield item
            advance(known(item) if total > 1 else "")  # of a single item, the answer follows at once


def finished_items(items: Iterable[T], report: Callable[[tuple[T, ...]], str], wanted: int) -> Iterator[T]:
    """Yield the items; Ctrl-C or SIGTERM while they are computed takes along the report of those that are finished.

    Args:
        items: What is computed, one after another.
        report: The text of an answer that has only the items it is given.
        wanted: The number of all items.
    """
    finished = list[T]()
    try:
        for item in items:
            finished.append(item)
            yield item
    except KeyboardInterrupt as stopped:
        if finished:
            setattr(stopped, _UNFINISHED, UnfinishedAnswer(len(finished), wanted, lambda: report(tuple(finished))))
        raise


class UnfinishedAnswer(NamedTuple):
    """The part of an answer that was finished when its command was stopped, of which `text` is the report."""

    finished: int  # items
    wanted: int  # items of the whole answer
    text: Callable[[], str]


def unfinished_answer(stopped: KeyboardInterrupt) -> UnfinishedAnswer | None:
    """Return the part of an answer that was finished when Ctrl-C or SIGTERM came; None: nothing was."""
    found: UnfinishedAnswer | None = getattr(stopped, _UNFINISHED, None)
    return found
