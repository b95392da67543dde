"""The time that an algorithm promises: an alpha-beta formula on a named ideal fabric.

A claim is always an upper bound. On the shapes for which `exact` is true it is an equality.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from emu.arrays import I64
from emu.errors import must_be

Fabric = Literal["rank", "channel", "link", "pair"]


def _always(shape: object) -> bool:
    """Return True: the claim holds on every shape."""
    return True


@dataclass(frozen=True, slots=True)
class Claim:
    """A promise of time: `T <= sum over link classes c of alpha_c * a_c + beta_c * V / B_c`, V the operation's size in bytes.

    The ideal fabric is made from the schedule itself. A message takes the latency a once. Ports and links have the rate B:
    `rank`: each participant has one port out and one port in;
    `channel`: each (participant, channel) has one port out and one port in;
    `link`: each (src, dst, channel) has one link;
    `pair`: each (src, dst) has one link.
    With `link_class`, a participant has those ports for each class, a link has the class of its pair, and alpha and beta give a
    tuple with one entry for each class. Without it there is one class. On the shapes for which `exact` is true both sides of
    the formula are equal.
    """

    fabric: Fabric
    alpha: Callable[[Any], int | tuple[int, ...]]  # takes the builder's kind of shape
    beta: Callable[[Any], Fraction | tuple[Fraction, ...]]
    exact: Callable[[Any], bool] = _always
    link_class: Callable[[Any, I64, I64], I64] | None = None  # (shape, src[P], dst[P]) -> class 0, 1, .. of each pair

    def alphas(self, shape: object) -> tuple[int, ...]:
        """Return the alpha of each link class; beta is not computed."""
        alpha = self.alpha(shape)
        return alpha if isinstance(alpha, tuple) else (alpha,)

    def terms(self, shape: object) -> list[tuple[int, Fraction]]:
        """Return (alpha, beta) of each link class.

        Raises:
            InputError: Alpha and beta have different numbers of link classes.
        """
        alphas, beta = self.alphas(shape), self.beta(shape)
        betas = beta if isinstance(beta, tuple) else (beta,)
        if len(alphas) != len(betas):
            raise must_be("claim", "beta", f"of {len(alphas)} link classes, as alpha is", len(betas), "give one entry a class")
        return list(zip(alphas, betas, strict=True))
