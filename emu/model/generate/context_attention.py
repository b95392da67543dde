"""Attention with context parallelism on a generated step: each rank of cp has a part of each sequence.

`emu.model.parallel.context_parallel` executes it. The bytes that it moves besides the attention itself were counted as those of
`emu.model.stack.passes`. All amounts are of one pass of one rank. Source: PyTorch,
torch/distributed/tensor/experimental/_context_parallel/_attention.py.
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
    """The attention of one part of a model on one rank of a group of context parallelism."""

    share: Share
    operator: ModelOperator  # over the keys of the rank

    @property
    def rows(self) -> int:
        """The number of queries of all heads on the rank; each query has one log-sum-exp value."""
        return self.operator.eager.forward.fixed_bytes // 4

    @property
    def queries(self) -> int:
        """The number of elements of the rank's queries."""
        return self.rows * self._width

    @property
    def keys(self) -> int:
        """The number of elements of the rank's keys; its values have the same number."""
        return (self.operator.eager.forward.cut - 2 * self.queries) // 2

    @property
    def _width(self) -> int:
        """The number of elements that one query has in one head."""
        return self.operator.eager.forward.flops // (4 * self.rows * self.share.tokens.length)

    @property
    def _cp(self) -> int:
        """The number of ranks of a group of context parallelism."""
        return self.share.plan.cp

    @property
    def _strided(self) -> bool:
        """True if the rank's keys and values are not contiguous in memory, so that they must be copied before they are sent."""
        return self.keys > self.share.tokens.n * self._width

    def forward(self) -> Iterator[Action]:
        """Yield the actions of the forward of one pass.

        If some block saw only half of the queries, merging has left the output ordered by head; then the output is copied into
        the order that the next operator reads.
        """
        yield from self.core()
        late = self.share.plan.cp_comm == "p2p" and self.share.at < self._cp - 1
        copied = late and self.operator.outputs.cut == self.queries and self.rows > self.share.tokens.n
        yield self._moved(2 * self.queries * copied)

    def core(self) -> Iterator[Action]:
        """Yield the actions of attention's forward except the copy of its output.

        Recomputation runs these actions a second time.
        """
        if self.share.plan.cp_comm == "all_gather":
            yield from [self.share.collective("all_gather", self._cp * self.keys, AXIS)._replace(prompt=True)] * 2
            yield self._moved(2 * (1 + self._cp) * self.keys)
            yield self._over_all_keys(self.operator.eager.forward, self._shape, once=1)
            return
        yield self._moved(4 * self.keys * self._strided)
        for step in range(self._cp):
            yield _KEYS
            yield from self._pass_on(step)
            yield self._block(self.operator.eager.forward, step, self._shape)
            yield self._moved(self._merge(step))

    def backward(self) -> Iterator[Action]:
        """Yield the actions of the backward of one pass.

        Its result is ordered by head, and is copied into the order that the next product of the backward reads.
        """
        turned = any(operator.kind == ROTATION for operator in self.share.operators)
        padded = self.operator.outputs.cut < self.queries
        read = (2 - turned - padded) * self.keys * self._strided
        if self.share.plan.cp_comm == "all_gather":
            yield self._over_all_keys(self.operator.eager.backward_input, self._shape.backward(), once=2)
            yield from [self.share.collective("reduce_scatter", self._cp * self.keys, AXIS)._replace(prompt=True)] * 2
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
        """Return whether the block of a step has the keys of a later rank, which only the second half of the queries sees."""
        return step > self.share.at

    def _pass_on(self, step: int) -> Iterator[Action]:
        """Yield the copy and the request that send the present keys and values to the next rank; nothing in the last step."""
        if step < self._cp - 1:
            yield self._moved(4 * self.keys)
            yield self._sent(_KEYS)

    def _sent(self, what: str) -> Action:
        """Return the request that sends keys and values, or their gradients, to the next rank of the group."""
        to = (self.share.at + 1) % self._cp
        splits = tuple(2 * self.keys * (place == to) for place in range(self._cp))
        return self.share.collective("all_to_all", 2 * self.keys, AXIS, splits)._replace(held=what)

    def _block(self, whole: Amount, step: int, shape: Shape) -> Action:
        """Return the computation of attention between the rank's queries and the keys of one step.

        In step 0 these are the rank's own keys, and all of the block is computed. In other steps a causal mask leaves half of
        the keys to all queries, or all keys to half of the queries.

        Args:
            whole: The amount of attention on the rank's own keys.
            step: The number of the step.
            shape: The shape of attention on the rank's own keys.
        """
        if not step:
            return self._attention_work(whole, shape)
        times = whole.cut // (2 * (self.queries + self.keys))
        seen = self.queries + 2 * self.keys if self._late(step) else 2 * self.queries + self.keys
        rows = whole.fixed_bytes // (2 if self._late(step) else 1)
        half = Amount(whole.flops // 2, cut=times * seen, fixed_bytes=rows)
        return self._attention_work(half, shape.unmasked(queries=2) if self._late(step) else shape.unmasked(keys=2))

    def _merge(self, step: int) -> int:
        """Return the number of elements that are moved to merge the result of a step into the result of the steps before.

        If only half of the queries saw the keys of the step, the result of the other half is copied, too.
        """
        of_row, of_each = _MERGED
        merged = of_row * self.rows + of_each * self.queries
        if not step:
            return 0
        return merged // 2 + 2 * (self.rows + self.queries) if self._late(step) else merged

    def _gradients(self, step: int) -> Iterator[Action]:
        """Yield the actions that add up and send on the gradients of a step's keys and values, and add up those of queries."""
        halves = step > 0 and not self._late(step)
        copied = 4 * self.keys * self._strided if not step else 0
        yield self._moved(((3 + 4) if halves else 6) * self.keys + copied + 4 * self.keys)
        yield self._sent(_GRADIENTS)
        yield self._moved((3 * self.queries // 2 + 2 * self.queries) if self._late(step) else 3 * self.queries)

    def _over_all_keys(self, own: Amount, shape: Shape, once: int) -> Action:
        """Return attention of the rank's queries over the keys of all ranks, under a mask.

        Args:
            own: The amount of attention on the rank's own keys.
            shape: Its shape.
            once: The number of times that the pass reads or writes the keys and the values.
        """
        more = 2 * once * (self._cp - 1) * self.keys
        mask = self.share.tokens.length * self.share.plan.seq
        under_mask = replace(own, flops=self._cp * own.flops, whole=mask, cut=own.cut + more)
        return self._attention_work(under_mask, shape.unmasked()._replace(n=self._cp * shape.n))

    @property
    def _shape(self) -> Shape:
        """The shape of attention between the rank's queries and its own keys."""
        return self.operator.shape_of(FORWARD)

    def _attention_work(self, amount: Amount, shape: Shape) -> Action:
        """Return a computation of attention under the name of its kernel.

        Its log-sum-exps are float32 whatever the dtype of activations is.
        """
        work = self.share.work(self.operator.name, amount, self.share.stack.precision.activation, shape)
        same = self.share.stack.precision.activation == "float32"
        return work._replace(elements=work.elements + same * (amount.fixed_bytes // 4))

    def _moved(self, elements: int) -> Action:
        """Return a computation that only moves elements of activations."""
        return self.share.active(self.operator.name, Amount(whole=elements))
