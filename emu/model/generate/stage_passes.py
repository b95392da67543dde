"""The passes of one stage on one rank, and the handling of its gradients."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import takewhile
from operator import ne
from typing import NamedTuple, TypeGuard

from emu.model.generate.gradients import ExpertGradients, WholeGradients, run
from emu.model.generate.item import Gradient, Item, held_last
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.memory.pass_memory import BackwardMemory, Moment, StageMemory
from emu.model.pipeline_order import BACKWARD, FORWARD, INPUT, WEIGHT


class StagePasses(NamedTuple):
    """The forwards and backwards of a stage on one rank, written on its tape."""

    tape: Tape
    stage: int
    parts: tuple[tuple[Part, ...], ...]  # by microbatch
    memory: tuple[StageMemory, ...]  # by microbatch
    gradients: WholeGradients
    experts: ExpertGradients

    def forward(self, pass_: int) -> None:
        """Write the forward of one microbatch."""
        self._copy_or_write(FORWARD, pass_, self.write_forward)

    def backward(self, pass_: int) -> None:
        """Write the backward of one microbatch: gradients are computed, accumulated and finally reduced."""
        self._copy_or_write(BACKWARD, pass_, self.write_backward)

    def backward_input(self, pass_: int) -> None:
        """Write the computation of one microbatch's input gradients, the first half of a split backward.

        On the first stage nothing is written, because tokens have no gradients; there `backward_weight` writes the whole
        backward.
        """
        if self.stage:
            self._copy_or_write(INPUT, pass_, self._backward_input)

    def backward_weight(self, pass_: int) -> None:
        """Write the rest of the backward of one microbatch, after `backward_input`."""
        if self.stage:
            self._copy_or_write(WEIGHT, pass_, self._backward_weight)
        else:
            self.backward(pass_)

    def _copy_or_write(self, what: str, pass_: int, write: Callable[[int], None]) -> None:
        """Write a pass on the tape, or copy an equal pass that was written before.

        The first and the last backward are never copied where events are written, because they treat gradients in ways of their
        own.

        Args:
            what: The kind of pass, such as FORWARD.
            pass_: The number of the microbatch.
            write: The function that writes the pass.
        """
        if what in (FORWARD, INPUT) or 0 < pass_ < self.last or self.tape.silent:
            self.tape.write_or_copy(self._key(what, pass_), partial(write, pass_), self.gradients.state, self.gradients.restore)
        else:
            write(pass_)

    @property
    def last(self) -> int:
        """The number of the last microbatch of the step, from 0."""
        return len(self.parts) - 1

    def _key(self, what: str, pass_: int) -> Hashable:
        """Return a key that is equal for passes with equal events, or on a silent tape for passes with equal memory.

        The events of a pass name their stage, so that their key has it; the memory of a pass does not depend on the stage's
        number.
        """
        of = (pass_ == 0, pass_ == self.last) if what in (BACKWARD, WEIGHT) else None
        if self.tape.silent:
            return what, of, self.memory[pass_].key
        return self.stage, what, of, tuple(part.routed for part in self.parts[pass_])

    def _backward_input(self, pass_: int) -> None:
        """Write the input gradients of one microbatch; a later `backward_weight` writes the gradients of its weights."""
        for place, part in reversed(list(enumerate(self.parts[pass_] if not self.tape.silent else ()))):
            self._run(part.backward_input, place, pass_)
        self.memory[pass_].backward_input(self.tape.ledger)

    def _backward_weight(self, pass_: int) -> None:
        """Write the gradient of each weight of one microbatch, in the order of the model.

        Outputs that the forward did not keep are recomputed for each weight anew.
        """
        for place, part in enumerate(self.parts[pass_] if not self.tape.silent else ()):
            for items in reversed(part.backward_weights):
                self._run(part.again, place, pass_)
                self._run(items, place, pass_)
        self.memory[pass_].backward_weight(self.tape.ledger, first=pass_ == 0)
        self.gradients.end(self.tape, pass_)

    def _run(self, items: Iterable[Item], place: int, pass_: int) -> None:
        """Write the actions of a part of the model on the tape, and pass on its gradients.

        Args:
            items: The items, one after another.
            place: The number of the part in the stage.
            pass_: The number of the pass.
        """
        for item in items:
            if isinstance(item, Gradient):
                self._add_gradient(item, place, pass_)
                continue
            run(self.tape, (item,))
            if isinstance(item, Moment):
                self.gradients.reach(item, place, pass_)

    def _add_gradient(self, gradient: Gradient, place: int, pass_: int) -> None:
        """Pass a computed gradient to the object that accumulates and reduces gradients of its kind.

        Args:
            gradient: The gradient; `travels` says that its parameter is of experts to which token rows are sent.
            place: The number of its part in the stage.
            pass_: The number of the pass.
        """
        part = self.parts[pass_][place]
        if gradient.travels:
            self.experts.handle(gradient, part, place, pass_)
        else:
            self.gradients.handle(self.tape, gradient, part, pass_)

    def _walk(self, moments: Iterable[Moment], items: Iterable[Item], place: int, pass_: int) -> None:
        """Write the events of one part, and at each moment update the memory of the step.

        Args:
            moments: The moments of the part, before each of which the memory of the step goes on.
            items: The events of the part, with the same moments among them.
            place: The number of the part in the stage.
            pass_: The number of the pass.
        """
        left = iter(items)
        for moment in moments:
            self._run(takewhile(partial(ne, moment), left), place, pass_)
            self.gradients.reach(moment, place, pass_)
        self._run(left, place, pass_)

    def write_forward(self, pass_: int) -> None:
        """Write all events of the forward of one microbatch, even if an equal forward could be copied."""
        memory = self.memory[pass_]
        self.gradients.begin()
        for place, part in enumerate(self.parts[pass_]):
            self.gradients.enter(place)
            items = () if self.tape.silent else held_last(part.forward)  # the next part reads what its last request gives
            self._walk(memory.forward(place, self.tape.ledger), items, place, pass_)
            self.gradients.leave(place)
        memory.end_forward(self.tape.ledger)

    def write_backward(self, pass_: int) -> None:
        """Write all events of the backward of one microbatch, even if an equal backward could be copied.

        Gradients that autograd adds up only at the end of the backward (`_is_late`) come last.
        """
        late: list[tuple[int, Gradient]] = []
        memory = BackwardMemory(self.memory[pass_], self.tape.ledger, pass_ == 0, pass_ == self.last)
        for place, part in reversed(list(enumerate(self.parts[pass_]))):
            self.gradients.enter_backward(place)
            items = () if self.tape.silent else part.backward
            late += [(place, item) for item in items if _is_late(item)]
            self._walk(memory.layer(place), (item for item in items if not _is_late(item)), place, pass_)
            self.gradients.leave_backward(place, pass_)
        for place, item in late:
            self._add_gradient(item, place, pass_)
        memory.end()
        self.gradients.end(self.tape, pass_)


def _is_late(item: Item) -> TypeGuard[Gradient]:
    """Return whether an item is a gradient that autograd accumulates only after all computations of the backward."""
    return isinstance(item, Gradient) and item.late and not item.travels
