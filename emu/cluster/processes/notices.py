"""What Emu logs in a process of a job goes to whoever has started the job: where it is logged, nobody would see it."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger("emu")
Notice = tuple[int, str]  # its level, and the words


class _HandsOn(logging.Handler):
    """Tells what is logged in this process, and not in one that a rank has forked: that has no connection of its own."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        super().__init__(logging.INFO)
        self._tell, self._pid = tell, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() == self._pid:
            self._tell((record.levelno, record.getMessage()))


@contextmanager
def handed_on(tell: Callable[[Notice], Any]) -> Iterator[None]:
    """Tell what Emu logs while the context lasts."""
    handler, before = _HandsOn(tell), _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.setLevel(before)
        _log.removeHandler(handler)


class Notices:
    """Logs what the processes of one job have told; what several tell alike is said once."""

    def __init__(self) -> None:
        self._said: set[Notice] = set()

    def say(self, notice: Notice) -> None:
        """Log it, unless another process has told the same."""
        if notice not in self._said:
            self._said.add(notice)
            _log.log(notice[0], "%s", notice[1])
