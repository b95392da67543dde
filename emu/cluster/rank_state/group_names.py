"""The names of process groups: all members of a group get one name, whatever other groups each of them has made."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from emu.arrays import digest

_LONGEST = 32  # the most letters of the ranks in a name


def group_namer(original: Callable[..., Any], made: Callable[[], Counter[tuple[int, ...]]]) -> Callable[..., Any]:
    """Return a function that names process groups, in place of PyTorch's `_process_group_name`.

    PyTorch's own function numbers all groups that a rank has made. Here, a name is the members and a number: the groups of
    equal members are counted in the order in which these make them, as NCCL does.

    Args:
        original: PyTorch's own function, which names the default group.
        made: A function that returns the groups that this thread's rank has made, counted by their members.
    """

    def name(ranks: Sequence[int], use_hashed_name: bool) -> Any:
        if not ranks:
            return original(ranks, use_hashed_name)
        counts, members = made(), tuple(ranks)
        counts[members] += 1
        return f"{_rank_text(members)}#{counts[members]}"

    return name


def _rank_text(ranks: tuple[int, ...]) -> str:
    """Return a text such as `0-3,8`; for a long list its first and last rank and a digest of all."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda each: each[1] - each[0])]
    words = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return words if len(words) <= _LONGEST else f"{ranks[0]}..{ranks[-1]}:{digest(ranks)[:8]}"
