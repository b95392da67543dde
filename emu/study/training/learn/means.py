"""The loss of a step over the ranks that know it."""

from collections.abc import Sequence


def mean_loss(of_ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """[steps] the mean over ranks, in their order; those without the last stage have none."""
    told = [losses for losses in of_ranks if losses]
    return tuple(sum(step) / len(told) for step in zip(*told, strict=True))
