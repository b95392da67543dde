"""The items of a part's passes on one rank: computations, requests, and gradients that are there.

All amounts are of one pass of one rank. An item waits for the request before it, unless the request is held.
"""

from typing import NamedTuple

from emu.model.moment import Moment
from emu.trace.kernel import MOVES, Shape


class Work(NamedTuple):
    """A computation."""

    name: str
    flops: int
    bytes: int  # of memory traffic
    elements: int  # of the activations' dtype, among them
    shape: Shape = MOVES
    dtype: str = ""  # of what a product reads, if other than that of activations


class WeightGradientWork(Work):
    """A computation of the gradient of a parameter; a split backward leaves it for later."""


class RepeatedWork(Work):
    """The share of a kernel for both gradients that runs again when the gradient of the parameter is computed separately."""


class Ask(NamedTuple):
    """A collective on the rank's group of an axis."""

    axis: str
    operation: str
    elements: int  # of the operation's whole size
    dtype: str
    held: str = ""  # for what it is kept, and waited for only there; "": it is waited for at once
    prompt: bool = False  # whether it is waited for at once even where what comes next does not read it
    splits: tuple[int, ...] = ()  # elements of each block that the rank gives; (): even


class RequestWait(NamedTuple):
    """The point at which the result of requests held under a name is needed."""

    what: str


ENTERS, GRADIENT = "enters", "gradient"  # what a request is held for: what a block reads, or the gradient of what it gave


class Gradient(NamedTuple):
    """The moment at which the gradient of a parameter is there, whole for the rank's tokens."""

    name: str
    elements: int  # of the rank's part
    late: bool  # whether autograd comes to it only after all that computes
    before: tuple["Action", ...] = ()  # what is still done with it then
    times: int = 1  # how many times as large it is until that is done; 0: it is added to what was there already
    travels: bool = False  # whether it is of experts of which other ranks have copies, to be added up by itself
    shared: bool = False  # whether another part's is added to it, which is reduced for both


Action = Work | Ask | RequestWait


Step = Action | Moment
Item = Step | Gradient
