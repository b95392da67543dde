"""What an algorithm promises: an alpha-beta bound on its time over a named ideal fabric.

A claim is an upper bound always, and an equality on the shapes where `exact` says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

Fabric = Literal["rank", "channel", "link", "pair"]


def _always(shape: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Claim:
    """`T <= alpha(shape) * a + beta(shape) * V / B`, V the operation's size in bytes.

    The ideal fabric is made from the schedule itself. `rank`: one port of rate B out of and one into each participant;
    `channel`: one of each a (participant, channel); `link`: one link of rate B a (src, dst, channel); `pair`: one a
    (src, dst). Each message takes latency a once.
    """

    fabric: Fabric
    alpha: Callable[[Any], int]  # of the builder's kind of shape
    beta: Callable[[Any], Fraction]
    exact: Callable[[Any], bool] = _always
