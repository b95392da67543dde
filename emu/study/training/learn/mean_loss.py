"""The loss of a step over the ranks that know it."""

from collections.abc import Sequence


def mean_loss(of_ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return [steps] the mean loss over ranks, in their order; ranks without the last stage have no loss."""
    told = [losses for losses in of_ranks if losses]
    return tuple(sum(step) / len(told) for step in zip(*told, strict=True))
