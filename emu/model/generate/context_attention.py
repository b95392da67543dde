"""Attention over sequences of which each rank of cp has a part (`emu.model.parallel.context_parallel`), forward and backward.

The bytes that it moves besides were counted in the same way as those of `emu.model.stack.passes`. All amounts are of one pass
of one rank. Source: PyTorch, torch/distributed/tensor/experimental/_context_parallel/_attention.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emu.model.generate.item import Action, Share
from emu.model.operator import FORWARD, ROTATION, Amount, ModelOperator
from emu.trace.kernel_shape import Shape

AXIS = "cp"
_KEYS, _GRADIENTS = "keys", "gradients of keys"  # what travels, and is waited for where it is read
_MERGED = (15, 8)  # elements moved, for each log-sum-exp and each element that comes out, as a block's result joins the others'


@dataclass(frozen=True)
class ContextAttention:
    """The attention of one part of a model."""

    share: Share
    operator: ModelOperator  # over the keys of the rank

    @property
    def rows(self) -> int:
        """The number of queries of all heads; each has one log-sum-exp."""
        return self.operator.eager.forward.fixed_bytes // 4

    @property
    def queries(self) -> int:
        """The elements of the queries."""
        return self.rows * self._width

    @property
    def keys(self) -> int:
        """The elements of the rank's keys, or of its values."""
        return (self.operator.eager.forward.cut - 2 * self.queries) // 2

    @property
    def _width(self) -> int:
        """The elements of a head."""
        return self.operator.eager.forward.flops // (4 * self.rows * self.share.tokens.length)

    @property
    def _cp(self) -> int:
        return self.share.plan.cp

    @property
    def _strided(self) -> bool:
        """True if keys and values lie among those of other heads, so that they are copied before they travel."""
        return self.keys > self.share.tokens.n * self._width

    def forward(self) -> Iterator[Action]:
        """Yield the forward of one pass.

        The output lies by head if half of the queries were put beside the rest; then it is copied for the next operator.
        """
        yield from self.core()
        late = self.share.plan.cp_comm == "p2p" and self.share.at < self._cp - 1
        copied = late and self.operator.outputs.cut == self.queries and self.rows > self.share.tokens.n
        yield self._moved(2 * self.queries * copied)

    def core(self) -> Iterator[Action]:
        """Yield the part of the forward that recomputation runs again."""
        if self.share.plan.cp_comm == "all_gather":
            yield from (self.share.asked("all_gather", self._cp * self.keys, AXIS)._replace(prompt=True) for _ in range(2))
            yield self._moved(2 * (1 + self._cp) * self.keys)
            yield self._whole(self.operator.eager.forward, self._shape, once=1)
            return
        yield self._moved(4 * self.keys * self._strided)
        for step in range(self._cp):
            yield _KEYS
            yield from self._pass_on(step)
            yield self._block(self.operator.eager.forward, step, self._shape)
            yield self._moved(self._merge(step))

    def backward(self) -> Iterator[Action]:
        """Yield the backward of one pass; its result lies by head, and is copied where the next product reads it."""
        turned = any(operator.kind == ROTATION for operator in self.share.operators)
        padded = self.operator.outputs.cut < self.queries
        read = (2 - turned - padded) * self.keys * self._strided
        if self.share.plan.cp_comm == "all_gather":
            yield self._whole(self.operator.eager.backward_input, self._shape.backward(), once=2)
            yield from (self.share.asked("reduce_scatter", self._cp * self.keys, AXIS)._replace(prompt=True) for _ in range(2))
            yield self._moved(2 * (1 + self._cp) * self.keys + 2 * read)
            return
        yield self._moved(self.queries + 2 * self.keys + 4 * self.keys * self._strided)
        for step in range(self._cp):
            yield _KEYS
            yield from self._pass_on(step)
            yield self._moved(self.rows * self._late(step))
            yield self._block(self.operator.eager.backward_input, step, self._shape.backward())
            yield _GRADIENTS
            yield from self._gradients(step)
        yield _GRADIENTS
        cut = self.share.at < self._cp - 1 and not turned
        yield self._moved(2 * read + 2 * self.queries * cut)

    def _late(self, step: int) -> bool:
        """Return whether the block has the keys of a later rank: only the later half of the queries sees it."""
        return step > self.share.at

    def _pass_on(self, step: int) -> Iterator[Action]:
        if step < self._cp - 1:
            yield self._moved(4 * self.keys)
            yield self._sent(_KEYS)

    def _sent(self, what: str) -> Action:
        to = (self.share.at + 1) % self._cp
        splits = tuple(2 * self.keys * (place == to) for place in range(self._cp))
        return self.share.asked("all_to_all", 2 * self.keys, AXIS, splits)._replace(held=what)

    def _block(self, whole: Amount, step: int, shape: Shape) -> Action:
        """Return the attention on one block.

        The first block is whole. Of another block half of the keys are seen, or half of the queries see it.
        """
        if not step:
            return self._named(whole, shape)
        times = whole.cut // (2 * (self.queries + self.keys))
        seen = self.queries + 2 * self.keys if self._late(step) else 2 * self.queries + self.keys
        rows = whole.fixed_bytes // (2 if self._late(step) else 1)
        half = Amount(whole.flops // 2, cut=times * seen, fixed_bytes=rows)
        return self._named(half, shape.unmasked(queries=2) if self._late(step) else shape.unmasked(keys=2))

    def _merge(self, step: int) -> int:
        """Return the elements moved to merge a block's result; with half of the rows, the rest is put beside them again."""
        of_row, of_each = _MERGED
        merged = of_row * self.rows + of_each * self.queries
        if not step:
            return 0
        return merged // 2 + 2 * (self.rows + self.queries) if self._late(step) else merged

    def _gradients(self, step: int) -> Iterator[Action]:
        """Yield the gradients of the block's keys and values, added to those that came with them; then those of the queries."""
        halves = step > 0 and not self._late(step)
        copied = 4 * self.keys * self._strided if not step else 0
        yield self._moved(((3 + 4) if halves else 6) * self.keys + copied + 4 * self.keys)
        yield self._sent(_GRADIENTS)
        yield self._moved((3 * self.queries // 2 + 2 * self.queries) if self._late(step) else 3 * self.queries)

    def _whole(self, own: Amount, shape: Shape, once: int) -> Action:
        """Return attention over all keys, under a mask."""
        more = 2 * once * (self._cp - 1) * self.keys
        mask = self.share.tokens.length * self.share.plan.seq
        under_mask = replace(own, flops=self._cp * own.flops, whole=mask, cut=own.cut + more)
        return self._named(under_mask, shape.unmasked()._replace(n=self._cp * shape.n))

    @property
    def _shape(self) -> Shape:
        """The shape of the block on the rank's own keys."""
        return self.operator.shape_of(FORWARD)

    def _named(self, amount: Amount, shape: Shape) -> Action:
        """Return a computation on attention's amounts; its log-sum-exps are float32, whatever dtype activations have."""
        work = self.share.work(self.operator.name, amount, self.share.stack.precision.activation, shape)
        same = self.share.stack.precision.activation == "float32"
        return work._replace(elements=work.elements + same * (amount.fixed_bytes // 4))

    def _moved(self, elements: int) -> Action:
        return self.share.active(self.operator.name, Amount(whole=elements))
