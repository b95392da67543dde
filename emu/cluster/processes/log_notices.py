"""Log messages of Emu in the processes of a job: they go to the process that started the job, where a person sees them."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger("emu")
Notice = tuple[int, str]  # the level and the text


class _Forwarder(logging.Handler):
    """A log handler that sends this process's messages to the process that reports; forked processes send none."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        super().__init__(logging.INFO)
        self._tell, self._pid = tell, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() == self._pid:
            self._tell((record.levelno, record.getMessage()))


@contextmanager
def forward_notices(tell: Callable[[Notice], Any]) -> Iterator[None]:
    """Forward Emu's log messages while the context lasts."""
    handler, before = _Forwarder(tell), _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.setLevel(before)
        _log.removeHandler(handler)


def log_notice(notice: Notice) -> None:
    """Log a message of another process."""
    _log.log(notice[0], "%s", notice[1])
