"""What an algorithm promises: an alpha-beta bound on its time over a named ideal fabric.

A claim is an upper bound always, and an equality on the shapes where `exact` says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from emu.arrays import I64
from emu.errors import must_be

Fabric = Literal["rank", "channel", "link", "pair"]


def _always(shape: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Claim:
    """`T <= sum over link classes c of alpha_c * a_c + beta_c * V / B_c`, V the operation's size in bytes.

    The ideal fabric is made from the schedule itself. `rank`: one port of rate B out of and one into each participant;
    `channel`: one of each a (participant, channel); `link`: one link of rate B a (src, dst, channel); `pair`: one a
    (src, dst). Each message takes latency a once. With `link_class` a participant has those ports for each class, a link
    is of its pair's class, and alpha and beta give a tuple of one entry a class; without it all are of one class.
    """

    fabric: Fabric
    alpha: Callable[[Any], int | tuple[int, ...]]  # of the builder's kind of shape
    beta: Callable[[Any], Fraction | tuple[Fraction, ...]]
    exact: Callable[[Any], bool] = _always
    link_class: Callable[[Any, I64, I64], I64] | None = None  # of (shape, src[P], dst[P]): 0, 1, .. for each pair

    def alphas(self, shape: object) -> tuple[int, ...]:
        """Alpha of each link class, without beta."""
        alpha = self.alpha(shape)
        return alpha if isinstance(alpha, tuple) else (alpha,)

    def terms(self, shape: object) -> list[tuple[int, Fraction]]:
        """(alpha, beta) of each link class.

        Raises:
            InputError: they are not of as many classes.
        """
        alphas, beta = self.alphas(shape), self.beta(shape)
        betas = beta if isinstance(beta, tuple) else (beta,)
        if len(alphas) != len(betas):
            raise must_be("claim", "beta", f"of {len(alphas)} link classes, as alpha is", len(betas), "give one entry a class")
        return list(zip(alphas, betas, strict=True))
