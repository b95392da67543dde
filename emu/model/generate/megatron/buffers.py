"""The gradients of a chunk of a model in buffers, reduced bucket by bucket, and the weights gathered in the same buckets.

With the distributed optimizer (a plan's `sharding=zero1`) gradients are scattered over the ranks that have copies, and weights
gathered from them; without it gradients are reduced. Exposed, a buffer is one bucket, reduced after the last backward and
gathered after the optimizer. Overlapped, the first stage's buckets of 40 M parameters, or 1 M a rank if that is more, are each
reduced once their gradients are there; every other buffer, and chunked the first stage's, is one bucket. Weights are gathered
as the next step begins, one bucket ahead.
Source: Megatron-LM, megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py; Rajbhandari et al.,
ZeRO (2020), section 5.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from emu.model.generate.gradients import moved
from emu.model.generate.item import Ask
from emu.model.generate.tape import Tape
from emu.model.stack.stack import Precision

_LEAST, _EACH_RANK = 40_000_000, 1_000_000  # parameters of a bucket


@dataclass
class Buffer:
    """The parameters of one kind that a rank has of a chunk."""

    tape: Tape
    precision: Precision
    axis: str  # of the ranks that have copies
    ranks: int
    scattered: bool  # gradients, so that each rank changes a share of the weights
    sizes: Sequence[tuple[int, int]]  # elements of each tensor and the place of its part, in the order of the backward
    bucketed: bool
    buckets: list[int] = field(init=False)  # elements of each, filled up to a multiple of the ranks
    of: list[int] = field(init=False)  # which bucket each tensor is in
    there: int = 0  # tensors whose gradients are
    requests: list[int] = field(default_factory=list)
    gathers: list[int] = field(default_factory=list)  # of weights, asked for so far
    gathered: int = 0  # ... and waited for

    def __post_init__(self) -> None:
        limit = max(_LEAST, _EACH_RANK * self.ranks) if self.bucketed else sum(size for size, _ in self.sizes)
        filled, self.of = [0], []
        for size, _ in self.sizes:
            if filled[-1] >= limit:
                filled.append(0)
            filled[-1] += size
            self.of.append(len(filled) - 1)
        self.buckets = [-(-elements // self.ranks) * self.ranks for elements in filled if elements]

    @property
    def elements(self) -> int:
        """Of all buckets."""
        return sum(self.buckets)

    @property
    def owned(self) -> int:
        """Parameters that the rank's optimizer changes."""
        return self.elements // self.ranks if self.scattered else self.elements

    def cleared(self) -> None:
        """Gradients are 0 as a step begins."""
        self.tape.compute(moved(self.precision, self.elements))

    def arrived(self) -> None:
        """The gradient of the next tensor is there, in the last backward: a bucket that is full is reduced meanwhile."""
        self.there += 1
        if self.there == len(self.of) or self.of[self.there] != self.of[self.there - 1]:
            self.requests += self._reduced(self.buckets[self.of[self.there - 1]])

    def reduce(self) -> None:
        """All that was not asked for yet; then what comes next waits for all."""
        for elements in self.buckets[len(self.requests) :]:
            self.requests += self._reduced(elements)
        self.tape.join(*self.requests)

    def gather(self) -> None:
        """The weights that the ranks have changed, at once."""
        self.gathers += [self._gathered(elements) for elements in (self.buckets if self._gathers else [])]
        self.tape.join(*self.gathers)

    def ahead(self) -> None:
        """A step begins: the weights of the first bucket to be used are asked for."""
        if self._gathers:
            self.gathers.append(self._gathered(self.buckets[-1]))

    def needs(self, place: int) -> None:
        """The first forward comes to a part: its weights are waited for, and those of the next bucket asked for."""
        own = [bucket for bucket, (_, at) in zip(self.of, self.sizes, strict=True) if at == place]
        while self._gathers and own and self.gathered < len(self.buckets) - min(own):
            self.tape.join(self.gathers[self.gathered])
            self.gathered += 1
            if len(self.gathers) < len(self.buckets):
                self.gathers.append(self._gathered(self.buckets[-1 - len(self.gathers)]))

    @property
    def _gathers(self) -> bool:
        return self.scattered and self.ranks > 1

    def _reduced(self, elements: int) -> list[int]:
        """Scaled to a mean, then added up."""
        if self.ranks == 1:
            return []
        self.tape.compute(moved(self.precision, 2 * elements))
        operation = "reduce_scatter" if self.scattered else "all_reduce"
        return [self.tape.ask(Ask(self.axis, operation, elements, self.precision.gradient))]

    def _gathered(self, elements: int) -> int:
        return self.tape.ask(Ask(self.axis, "all_gather", elements, self.precision.weight))
