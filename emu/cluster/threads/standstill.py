"""A standstill: a moment in which no rank of a process can go on; its description, and the end of the run that follows."""

from collections.abc import Callable, Sequence, Set

from emu.backend.rank.request_work import RequestWork
from emu.cluster.call_matcher import CallMatcher
from emu.cluster.strands.strand import Wait
from emu.cluster.strands.strands import Strands
from emu.cluster.threads.rests import Rests
from emu.cluster.watch.watch import SAID_S, absence_in_words
from emu.errors import RunError


class Standstill:
    """The waits of all ranks of a run, in words.

    Args:
        ranks: The ranks of this process.
        rests: The strands that rest, with their waits.
        strands: The strands of these ranks.
        calls: The requests that some members have not made.
        ended: The ranks that have ended.
        is_told: A function that says whether something else will wake a rank, or report: a coordinator, or a clock.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        rests: Rests,
        strands: Strands,
        calls: CallMatcher,
        ended: Set[int],
        is_told: Callable[[], bool],
    ) -> None:
        self._ranks, self._rests, self._strands = ranks, rests, strands
        self._calls, self._ended, self._is_told = calls, ended, is_told

    def others(self) -> int:
        """Return the number of ranks that wait for one that does not come back."""
        return len(self._ranks) - len(self._ended) - 1

    def story(self) -> str:
        """Return the waits of all ranks in words."""
        outside = {rank for rank in self._ranks if isinstance(self._rests.waits.get(rank), Wait)}
        waits = [(self._rests.baton.rank_of(strand), what) for strand, what in sorted(self._rests.waits.items())]
        waits.sort(key=lambda each: each[0] not in outside)  # those first that others of their rank may wait for
        others = [wait.told(rank) for rank, wait in self._strands.waits()]
        return self._calls.story(waits, others, self._ended)

    def lasts(self) -> tuple[str, bool]:
        """Return the waits in words if no rank has the baton, and whether, by what Emu knows, none will ever go on.

        If ranks sleep, or wait outside of Python, the words name those that the others wait for.
        """
        if not self._rests.waits or self._is_told():
            return "", False
        if not self._rests.baton.has_timers:
            return self.story(), True
        absent = [rank for rank in self._ranks if not isinstance(self._rests.waits.get(rank), RequestWork)]
        seen = [(rank, self._strands.sight(rank)) for rank in absent]
        others = len(self._ranks) - len(self._ended) - sum(sight is not None for _, sight in seen)
        told = [sight.told(rank) for rank, sight in seen if sight is not None and not sight.waits]
        return (absence_in_words("; ".join(told), SAID_S, others), False) if told and others else ("", False)

    def begins(self) -> None:
        """End the run as a deadlock, unless something that Emu does not know may let a rank go on."""
        if self._is_told():
            return
        if not self._rests.waits:
            raise RuntimeError("no rank can go on, and none waits for a request")
        if self._strands.are_awaited_from_outside():
            return  # the watch tells of it if none goes on
        if self._rests.failure is None:
            self._rests.failure = RunError(f"deadlock: {self.story()}")
        self._rests.wake_all()
