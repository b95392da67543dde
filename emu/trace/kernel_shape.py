"""Kinds of kernels, and the sizes of a computation, which decide how well it uses the device."""

from enum import IntEnum
from typing import NamedTuple


class Kernel(IntEnum):
    """The kind of a kernel, such as a product or an attention; a device has its own model of time for each kind."""

    OTHER = 0  # a kernel that moves bytes, or one whose FLOPs have an unknown shape
    PRODUCT = 1  # BATCH matrices [M, K] times as many [K, N]; of a grouped product M is the rows of each group
    ATTENTION = 2  # one kernel that writes no scores: BATCH heads of all sequences, M queries, N keys, K elements a head
    CAUSAL = 3  # ATTENTION under a causal mask, which needs only half of the scores
    ATTENTION_BACKWARD = 4  # the gradients of queries, keys and values of that attention
    CAUSAL_BACKWARD = 5  # the same under a causal mask
    SCATTER_ADD = 6  # adds M rows of N elements to rows that repeat, each element by an atomic operation


ATTENTIONS = (Kernel.ATTENTION, Kernel.CAUSAL, Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL_BACKWARD)
MASKED = (Kernel.CAUSAL, Kernel.CAUSAL_BACKWARD)
BACKWARD = (Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL_BACKWARD)
_UNMASKED = {Kernel.CAUSAL: Kernel.ATTENTION, Kernel.CAUSAL_BACKWARD: Kernel.ATTENTION_BACKWARD}
_BACKWARD = {Kernel.ATTENTION: Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL: Kernel.CAUSAL_BACKWARD}


class Shape(NamedTuple):
    """The kernel kind and the sizes of one computation; a size of 0 is unknown."""

    kernel: Kernel = Kernel.OTHER
    batch: int = 0
    m: int = 0
    n: int = 0
    k: int = 0

    def unmasked(self, queries: int = 1, keys: int = 1) -> "Shape":
        """Return the shape of an attention in which part of the queries sees a whole part of the keys, without a mask.

        Args:
            queries: The number of equal parts into which the queries are divided; the result has one of them.
            keys: The number of equal parts into which the keys are divided; the result has one of them.
        """
        if self.kernel not in _UNMASKED:
            return self
        return self._replace(kernel=_UNMASKED[self.kernel], m=self.m // queries, n=self.n // keys)

    def backward(self) -> "Shape":
        """Return the shape of the backward kernel of an attention; other shapes are unchanged."""
        return self._replace(kernel=_BACKWARD.get(self.kernel, self.kernel))


MOVES = Shape()
