"""The gradients of a chunk of a model in buffers, reduced bucket by bucket, and the weights gathered in the same buckets.

With the distributed optimizer (a plan's `sharding=zero1`) gradients are scattered over the ranks that have copies, and weights
gathered from them; without it gradients are reduced. Exposed, a buffer is one bucket, reduced after the last backward and
gathered after the optimizer. Overlapped, the first stage's buckets of 40 M parameters, or 1 M a rank of dp if that is more, are
each reduced once their gradients are there; every other buffer, and chunked the first stage's, is one bucket. Weights are
gathered as the next step begins, one bucket ahead.

Scattered buffers are filled up: a tensor begins at a multiple of 64 elements, a bucket ends at one of 128 and of the ranks. A
table of which both ends of a pipeline have a copy is then a bucket of its own.
Source: Megatron-LM, core_v0.15.3, megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py; Rajbhandari
et al., ZeRO (2020), section 5.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple

from emu.model.generate.gradients import gradient_work
from emu.model.generate.item import Ask
from emu.model.generate.tape import Tape
from emu.model.stack.stack import Precision

_LEAST, _EACH_RANK = 40_000_000, 1_000_000  # parameters of a bucket
_TENSOR, _BUCKET = 64, 128  # elements: where something that is scattered begins


class Tensor(NamedTuple):
    """The parameters of one kernel."""

    elements: int
    place: int = 0  # of its part in the chunk
    shared: bool = False  # the other end of a pipeline has a copy


@dataclass
class Buffer:
    """The parameters of one kind that a rank has of a chunk."""

    tape: Tape
    precision: Precision
    axis: str  # of the ranks that have copies
    ranks: int
    scattered: bool  # gradients, so that each rank changes a share of the weights
    tensors: Sequence[Tensor]  # in the order of the backward
    limit: int = 0  # parameters with which a bucket is full; 0: never
    gathers: str = ""  # the dtype in which weights are gathered; "": that of weights
    buckets: list[int] = field(init=False)  # elements of each
    of: list[int] = field(init=False)  # which bucket each tensor is in
    there: int = 0  # tensors whose gradients are
    requests: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # gathers of weights, asked for so far
    gathered: int = 0  # ... and waited for

    def __post_init__(self) -> None:
        begin, end = (_TENSOR, lcm(self.ranks, _BUCKET)) if self.scattered else (1, 1)
        filled, self.of, full = list[int](), list[int](), True
        for tensor in self.tensors:
            alone = tensor.shared and self.scattered
            if full or alone:
                filled.append(0)
            filled[-1] = _up(filled[-1], begin) + tensor.elements
            self.of.append(len(filled) - 1)
            full = alone or (0 < self.limit <= filled[-1])
        self.buckets = [_up(elements, end) for elements in filled]

    @property
    def elements(self) -> int:
        """The elements of all buckets."""
        return sum(self.buckets)

    @property
    def owned(self) -> int:
        """The parameters that the rank's optimizer changes."""
        return self.elements // self.ranks if self.scattered else self.elements

    def cleared(self) -> None:
        """Set gradients to 0 as a step begins."""
        self.tape.compute(gradient_work(self.precision, self.elements))

    def arrived(self) -> None:
        """Record that the last backward has made the next tensor's gradient; the reduction of a bucket that is full begins."""
        self.there += 1
        if self.there == len(self.of) or self.of[self.there] != self.of[self.there - 1]:
            self.requests += self._reduced(self.buckets[self.of[self.there - 1]])

    def reduce(self) -> None:
        """Wait for the requests made so far; then reduce the other buckets one after another."""
        self.tape.join(*self.requests)
        for elements in self.buckets[len(self.requests) :]:
            self.tape.join(*self._reduced(elements))

    def gather(self) -> None:
        """Gather the changed weights, bucket after bucket."""
        for elements in self.buckets if self._gathers else []:
            self.tape.join(self._gathered(elements))

    def ahead(self) -> None:
        """Request the weights of the first bucket that the new step uses."""
        if self._gathers:
            self.asked.append(self._gathered(self.buckets[-1]))

    def needs(self, place: int) -> None:
        """Wait for the weights of a part in the first forward, and request those of the next bucket."""
        own = [bucket for bucket, tensor in zip(self.of, self.tensors, strict=True) if tensor.place == place]
        while self._gathers and own and self.gathered < len(self.buckets) - min(own):
            self.tape.join(self.asked[self.gathered])
            self.gathered += 1
            if len(self.asked) < len(self.buckets):
                self.asked.append(self._gathered(self.buckets[-1 - len(self.asked)]))

    @property
    def _gathers(self) -> bool:
        return self.scattered and self.ranks > 1

    def _reduced(self, elements: int) -> list[int]:
        """Request the mean of a bucket's gradients: they are scaled, then added up."""
        if self.ranks == 1:
            return []
        self.tape.compute(gradient_work(self.precision, 2 * elements))
        operation = "reduce_scatter" if self.scattered else "all_reduce"
        return [self.tape.ask(Ask(self.axis, operation, elements, self.precision.gradient))]

    def _gathered(self, elements: int) -> int:
        return self.tape.ask(self.weights(elements))

    def weights(self, elements: int) -> Ask:
        """Return the gather of so many weights."""
        return Ask(self.axis, "all_gather", elements, self.gathers or self.precision.weight)


def bucket_limit(dp: int) -> int:
    """Return the number of parameters that fills a bucket, of experts too, with `dp` ranks of data parallelism."""
    return max(_LEAST, _EACH_RANK * dp)


def _up(elements: int, to: int) -> int:
    """Return the next multiple of `to`."""
    return -(-elements // to) * to
