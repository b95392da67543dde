"""What an algorithm promises: an alpha-beta bound on its time over a named ideal fabric.

A claim is an upper bound always, and an equality on the shapes where `exact` says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Fabric = Literal["rank", "channel", "link", "pair"]


def _always(shape: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Claim:
    """`T <= alpha(n) * a + beta(n) * V / B`, V the operation's size in bytes.

    The ideal fabric is made from the schedule itself. `rank`: one port of rate B out of and one into each participant;
    `channel`: one of each a (participant, channel); `link`: one link of rate B a (src, dst, channel); `pair`: one a
    (src, dst). Each message takes latency a once.
    """

    fabric: Fabric
    alpha: Callable[[int], int]
    beta: Callable[[int], Fraction]
    exact: Callable[[int], bool] = _always
