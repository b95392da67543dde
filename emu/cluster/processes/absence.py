"""Ranks in other processes that do not come back while all others wait for them: they are told of, and at last given up."""

import logging
from collections.abc import Callable, Set

from emu.cluster.watch.sight import Sight, is_idle
from emu.cluster.watch.watch import SAID_S, not_back
from emu.errors import RunError

_ASK_S = 1.0
_log = logging.getLogger("emu")


class Absence:
    """The rank that all others wait for, if there is one.

    Args:
        n_ranks: Of the job.
        ask: Asks the process of a rank where that is; `is_at` is given the answer.
        fail: Is given the error of a rank that waits for ever.
        patience_s: A rank that waits for so long, and does nothing else, is given up.
    """

    def __init__(self, n_ranks: int, ask: Callable[[int], None], fail: Callable[[Exception], None], patience_s: float) -> None:
        self._n_ranks, self._ask, self._fail, self._patience_s = n_ranks, ask, fail, patience_s
        self._here: Set[int] = frozenset()  # the ranks that wait or have ended
        self._since_s = self._asked_s = 0.0
        self._rank, self._said = -1, False
        self._idle: tuple[float, Sight] | None = None  # since when it has not used the processor

    def heard(self, now_s: float) -> None:
        """A rank has asked for something: none is absent."""
        self._since_s, self._idle, self._said = now_s, None, False

    def look(self, here: Set[int], now_s: float) -> None:
        """Ask where a rank is that the others have waited for long.

        Args:
            here: The ranks that wait or have ended.
            now_s: By this host's monotonic clock.
        """
        if here != self._here:
            self._here = frozenset(here)
            self.heard(now_s)
        absent = set(range(self._n_ranks)) - here
        if here and absent and now_s - self._since_s > SAID_S and now_s - self._asked_s > _ASK_S:
            self._rank, self._asked_s = min(absent), now_s
            self._ask(self._rank)

    def is_at(self, rank: int, sight: Sight, has_processes: bool, now_s: float) -> None:
        """Hear where a rank is that was asked for."""
        if rank != self._rank or rank in self._here:
            return
        if not self._said:
            self._said = True
            _log.info("%s", not_back(sight.told(rank), SAID_S, len(self._here)))
        if self._idle is None or has_processes or not sight.waits or not is_idle(self._idle[1], sight):
            self._idle = now_s, sight
        elif now_s - self._idle[0] > self._patience_s - SAID_S:
            self._fail(RunError(not_back(sight.told(rank), self._patience_s, len(self._here))))
