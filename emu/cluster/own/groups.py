"""Names of process groups that all members of a group agree on, whatever other groups each of them has made."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from emu.arrays import digest

_LONGEST = 32  # letters of the ranks in a name


def naming(original: Callable[..., Any], made: Callable[[], Counter[tuple[int, ...]]]) -> Callable[..., Any]:
    """Return what stands in place of PyTorch's `_process_group_name`, which counts all groups that a rank has made.

    A name is the members and a number: the groups of the same members are counted, as NCCL tells them apart, in the order in
    which these make them.

    Args:
        original: PyTorch's own, which names the default group.
        made: Gives the groups that the rank of this thread has made, by their members.
    """

    def name(ranks: Sequence[int], use_hashed_name: bool) -> Any:
        if not ranks:
            return original(ranks, use_hashed_name)
        counts, members = made(), tuple(ranks)
        counts[members] += 1
        return f"{_listed(members)}#{counts[members]}"

    return name


def _listed(ranks: tuple[int, ...]) -> str:
    """Such as `0-3,8`; of ranks whose list is long its first and last one, and a word that is different for others."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda each: each[1] - each[0])]
    words = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return words if len(words) <= _LONGEST else f"{ranks[0]}..{ranks[-1]}:{digest(ranks)[:8]}"
