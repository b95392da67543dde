"""In which order a rank of a pipeline runs its microbatches: what each order asks of a plan.

P stages of ranks, V virtual stages a rank, M microbatches. Sources: GPipe (Huang et al., 2019); 1F1B and interleaved 1F1B
(Narayanan et al., SC21, section 2.2); ZB-V (Qi et al., 2024); DualPipeV (DeepSeek-V3, cut in half); as PyTorch has them.
"""

from typing import NamedTuple

from emu.errors import must_be
from emu.registry import unknown


class Order(NamedTuple):
    """What one order asks of virtual stages and microbatches."""

    virtual: tuple[int, ...]  # V that it takes; (): 2 or more
    times: int  # the fewest M, times P; 0: any
    rounds: bool = False  # whether M must come in equal rounds of at least P
    splits: bool = False  # whether the gradients of inputs and of weights are separate turns
    wraps: bool = False  # whether the second stage of a rank is the mirror of its first (V-shaped), not P later
    of_pytorch: int = 0  # the fewest M, times P, where PyTorch asks for more than the order needs

    def takes(self, virtual: int) -> bool:
        """Whether it runs so many virtual stages a rank."""
        return virtual in self.virtual if self.virtual else virtual > 1

    def fits(self, microbatches: int, stages: int, *, pytorch: bool = True) -> bool:
        """Whether so many run; with PyTorch too, unless it is not asked."""
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
    """Of so many virtual stages a rank."""
    return "1f1b" if virtual == 1 else "interleaved"


def check_order(name: str, stages: int, virtual: int, microbatches: int, sequences: int) -> None:
    """Refuse an order that these do not fit.

    Args:
        name: Of the order.
        stages: P.
        virtual: V.
        microbatches: M.
        sequences: Of all ranks in one microbatch.

    Raises:
        InputError: the message names what would.
    """
    if name not in ORDERS:
        raise unknown("order of a pipeline", name, ORDERS)
    order = ORDERS[name]
    if not order.takes(virtual):
        told = " or ".join(map(str, order.virtual)) or "2 or more"
        raise must_be("plan", "vp", f"{told} in the order {name}", virtual, _orders_of(virtual))
    _check_least(name, stages, virtual, order.times, microbatches, sequences)
    if order.rounds and not order.fits(microbatches, stages):
        low = microbatches // stages * stages
        mend = f"take a global batch of {low * sequences} or {(low + stages) * sequences}"
        raise must_be("plan", "microbatches", f"a multiple of the {stages} stages in the order {name}", microbatches, mend)


def check_of_pytorch(name: str, stages: int, virtual: int, microbatches: int, sequences: int) -> None:
    """Refuse fewer microbatches than PyTorch runs an order with; arguments as of `check_order`.

    Raises:
        InputError: the message names what would.
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
    """The stages that a rank at that place of its pipeline has, of all P * V in the order of the model."""
    if ORDERS[name].wraps:
        return (place, 2 * stages - 1 - place)
    return tuple(place + stages * chunk for chunk in range(virtual))
