"""The turns of a rank of a pipeline, the orders in which it runs its microbatches, and what each order requires of a plan.

P stages of ranks, V virtual stages of a rank, M microbatches. Sources: GPipe (Huang et al., 2019); 1F1B and interleaved 1F1B
(Narayanan et al., SC21, section 2.2); ZB-V (Qi et al., 2024); DualPipeV (DeepSeek-V3, cut in half); as PyTorch has them.
"""

from typing import NamedTuple

FORWARD, BACKWARD = "F", "B"
INPUT, WEIGHT = "I", "W"  # a split backward pass: gradients of the inputs, then those of the weights
SEND, RECEIVE = "send ", "receive "  # prefixes of FORWARD or BACKWARD: the message has the result of that pass
GATHER, DROP, REDUCE = "gather", "drop", "reduce"  # gather or drop a stage's sharded weights; reduce its gradients


class Turn(NamedTuple):
    """One turn of a place of a pipeline: a pass of a microbatch, a message, or an action on a stage's weights."""

    stage: int  # of all P * V stages; for a message, the stage that sends or receives it
    what: str
    microbatch: int = 0


TurnGroup = tuple[Turn, ...]  # turns without a message between them


class Order(NamedTuple):
    """The requirements of one order on virtual stages and microbatches."""

    virtual: tuple[int, ...]  # the allowed V; (): 2 or more
    times: int  # the fewest M as a multiple of P; 0: any
    rounds: bool = False  # True if M must divide into equal rounds of at least P
    splits: bool = False  # True if gradients of inputs and of weights are separate turns
    wraps: bool = False  # True if the second stage of a rank mirrors its first (V-shaped)
    executed: int = 0  # the fewest M as a multiple of P, if real ranks need more than the order

    def takes(self, virtual: int) -> bool:
        """Return True if the order runs with so many virtual stages of a rank."""
        return virtual in self.virtual if self.virtual else virtual > 1

    def least(self, stages: int, *, executed: bool) -> int:
        """Return the fewest microbatches with which the order runs; with `executed`, on real ranks."""
        return max(1, self.times * stages, self.executed * stages * executed)

    def fits(self, microbatches: int, stages: int, *, executed: bool = True) -> bool:
        """Return True if the order runs with so many microbatches; with `executed`, on real ranks."""
        return microbatches >= self.least(stages, executed=executed) and self.has_whole_rounds(microbatches, stages)

    def has_whole_rounds(self, microbatches: int, stages: int) -> bool:
        """Return True if the order needs no rounds, or so many microbatches divide into equal ones."""
        return not (self.rounds and microbatches % (microbatches // stages))


ORDERS = {
    "gpipe": Order((1,), 0),
    "1f1b": Order((1,), 0, executed=1),
    "interleaved": Order((), 1, rounds=True),
    "zero-bubble": Order((), 1, rounds=True, splits=True),
    "zbv": Order((2,), 0, splits=True, wraps=True),
    "dualpipev": Order((2,), 2, splits=True, wraps=True),
}


def default_order(virtual: int) -> str:
    """Return the default order for a number of virtual stages of a rank."""
    return "1f1b" if virtual == 1 else "interleaved"


def orders_with(virtual: int) -> list[str]:
    """Return the orders that run with so many virtual stages of a rank."""
    return [name for name, order in ORDERS.items() if order.takes(virtual)]


def stages_of(place: int, stages: int, virtual: int, name: str) -> tuple[int, ...]:
    """Return the stages of a rank at a place of its pipeline, of all P * V in the order of the model."""
    if ORDERS[name].wraps:
        return (place, 2 * stages - 1 - place)
    return tuple(place + stages * chunk for chunk in range(virtual))
