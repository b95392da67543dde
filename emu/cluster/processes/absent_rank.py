"""The rank of another process that does not come back while all others wait."""

import logging
from collections.abc import Callable, Set

from emu.cluster.strands.sight import IDLE_S, Sight
from emu.cluster.watch import SAID_S, absence_in_words
from emu.errors import RunError

_ASK_S = 1.0
_log = logging.getLogger("emu")


class AbsentRank:
    """The rank for which all others wait, if there is one.

    Args:
        n_ranks: The number of ranks of the job.
        ask: A function that asks the process of a rank for its place; `is_at` gets the answer.
        fail: A function that gets the error of a rank that waits for ever.
        patience_s: Seconds after which the job fails because of a rank that waits and does nothing else.
    """

    def __init__(self, n_ranks: int, ask: Callable[[int], None], fail: Callable[[Exception], None], patience_s: float) -> None:
        self._n_ranks, self._ask, self._fail, self._patience_s = n_ranks, ask, fail, patience_s
        self._here: Set[int] = frozenset()  # the ranks that wait or have ended
        self._since_s = self._asked_s = 0.0
        self._rank, self._said = -1, False
        self._idle: tuple[float, float] | None = None  # since when it has not used the processor, and how long it had by then

    def heard(self, now_s: float) -> None:
        """Take note that a rank made a request, so no rank is absent."""
        self._since_s, self._idle, self._said = now_s, None, False

    def look(self, here: Set[int], now_s: float) -> None:
        """Ask for the place of a rank for which the others have waited long.

        Args:
            here: The ranks that wait or have ended.
            now_s: The time of this host's monotonic clock.
        """
        if here != self._here:
            self._here = frozenset(here)
            self.heard(now_s)
        absent = set(range(self._n_ranks)) - here
        if here and absent and now_s - self._since_s > SAID_S and now_s - self._asked_s > _ASK_S:
            self._rank, self._asked_s = min(absent), now_s
            self._ask(self._rank)

    def is_at(self, rank: int, sight: Sight, has_processes: bool, now_s: float) -> None:
        """Take the answer about the place of a rank; log it once, and fail if the rank has waited for too long."""
        if rank != self._rank or rank in self._here:
            return
        if not self._said:
            self._said = True
            _log.info("%s", absence_in_words(sight.told(rank), SAID_S, len(self._here)))
        if self._idle is None or has_processes or not sight.waits or sight.spent_s - self._idle[1] >= IDLE_S:
            self._idle = now_s, sight.spent_s
        elif now_s - self._idle[0] > self._patience_s - SAID_S:
            self._fail(RunError(absence_in_words(sight.told(rank), self._patience_s, len(self._here))))
