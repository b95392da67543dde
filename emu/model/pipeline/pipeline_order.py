"""The orders in which a rank of a pipeline runs its microbatches, and what each order requires of a plan.

P stages of ranks, V virtual stages of a rank, M microbatches. Sources: GPipe (Huang et al., 2019); 1F1B and interleaved 1F1B
(Narayanan et al., SC21, section 2.2); ZB-V (Qi et al., 2024); DualPipeV (DeepSeek-V3, cut in half); as PyTorch has them.
"""

from typing import NamedTuple

from emu.errors import must_be
from emu.registry import unknown


class Order(NamedTuple):
    """The requirements of one order on virtual stages and microbatches."""

    virtual: tuple[int, ...]  # the allowed V; (): 2 or more
    times: int  # the fewest M as a multiple of P; 0: any
    rounds: bool = False  # True if M must divide into equal rounds of at least P
    splits: bool = False  # True if gradients of inputs and of weights are separate turns
    wraps: bool = False  # True if the second stage of a rank mirrors its first (V-shaped)
    of_pytorch: int = 0  # the fewest M as a multiple of P, if PyTorch needs more than the order

    def takes(self, virtual: int) -> bool:
        """Return True if the order runs with so many virtual stages of a rank."""
        return virtual in self.virtual if self.virtual else virtual > 1

    def fits(self, microbatches: int, stages: int, *, pytorch: bool = True) -> bool:
        """Return True if the order runs with so many microbatches; with `pytorch`, also as PyTorch implements it."""
        least = max(1, self.times * stages, self.of_pytorch * stages * pytorch)
        return microbatches >= least and not (self.rounds and microbatches % (microbatches // stages))


ORDERS = {
    "gpipe": Order((1,), 0),
    "1f1b": Order((1,), 0, of_pytorch=1),
    "interleaved": Order((), 1, rounds=True),
    "zero-bubble": Order((), 1, rounds=True, splits=True),
    "zbv": Order((2,), 0, splits=True, wraps=True),
    "dualpipev": Order((2,), 2, splits=True, wraps=True),
}


def default_order(virtual: int) -> str:
    """Return the default order for a number of virtual stages of a rank."""
    return "1f1b" if virtual == 1 else "interleaved"


def check_order(name: str, stages: int, virtual: int, microbatches: int, sequences: int) -> None:
    """Check that an order fits the stages and microbatches of a plan.

    Args:
        name: The name of the order.
        stages: The number P of stages of ranks.
        virtual: The number V of virtual stages of a rank.
        microbatches: The number M of microbatches.
        sequences: The sequences of all ranks in one microbatch.

    Raises:
        InputError: it does not; the message names values that do.
    """
    if name not in ORDERS:
        raise unknown("order of a pipeline", name, ORDERS)
    order = ORDERS[name]
    if not order.takes(virtual):
        allowed = " or ".join(map(str, order.virtual)) or "2 or more"
        raise must_be("plan", "vp", f"{allowed} in the order {name}", virtual, _orders_of(virtual))
    _check_least(name, stages, virtual, order.times, microbatches, sequences)
    if order.rounds and not order.fits(microbatches, stages):
        low = microbatches // stages * stages
        mend = f"take a global batch of {low * sequences} or {(low + stages) * sequences}"
        raise must_be("plan", "microbatches", f"a multiple of the {stages} stages in the order {name}", microbatches, mend)


def check_of_pytorch(name: str, stages: int, virtual: int, microbatches: int, sequences: int) -> None:
    """Check that PyTorch runs an order with so few microbatches.

    Args:
        name: The name of the order.
        stages: The number P of stages of ranks.
        virtual: The number V of virtual stages of a rank.
        microbatches: The number M of microbatches.
        sequences: The sequences of all ranks in one microbatch.

    Raises:
        InputError: it does not; the message names values that do.
    """
    _check_least(name, stages, virtual, ORDERS[name].of_pytorch, microbatches, sequences)


def _check_least(name: str, stages: int, virtual: int, times: int, microbatches: int, sequences: int) -> None:
    least = max(1, times * stages)
    if microbatches < least:
        fitting = [
            f"order={other}" for other, each in ORDERS.items() if each.takes(virtual) and each.fits(microbatches, stages)
        ]
        mend = f"take {' or '.join([f'a global batch of {least * sequences}', *fitting])}"
        raise must_be("plan", "microbatches", f"{least} or more in the order {name} of {stages} stages", microbatches, mend)


def _orders_of(virtual: int) -> str:
    fitting = [name for name, order in ORDERS.items() if order.takes(virtual)]
    return f"take order={' or '.join(fitting)}"


def stages_of(place: int, stages: int, virtual: int, name: str) -> tuple[int, ...]:
    """Return the stages of a rank at a place of its pipeline, of all P * V in the order of the model."""
    if ORDERS[name].wraps:
        return (place, 2 * stages - 1 - place)
    return tuple(place + stages * chunk for chunk in range(virtual))
