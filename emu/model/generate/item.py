"""What a part of a model does on one rank, one thing after another: computations, requests, and gradients that are there.

All amounts are of one pass of one rank. What comes next waits for a request.
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


class OfWeight(Work):
    """A computation of the gradient of a parameter, which a backward in two leaves for later."""


class Alone(Work):
    """What a kernel that yields both gradients does once more where that of the parameter comes by itself."""


class Ask(NamedTuple):
    """A collective on the rank's group of an axis."""

    axis: str
    operation: str
    elements: int  # of the operation's whole size
    dtype: str
    held: str = ""  # for what it is kept, and waited for only there; "": it is waited for at once
    prompt: bool = False  # whether it is waited for at once even where what comes next does not read it
    splits: tuple[int, ...] = ()  # elements of each block that the rank gives; (): even


class Wait(NamedTuple):
    """What was asked for and held for this is needed now."""

    what: str


ENTERS, GRADIENT = "enters", "gradient"  # what a request is held for: what a block reads, or the gradient of what it gave


class Gradient(NamedTuple):
    """The gradient of a parameter is there, whole for the rank's tokens."""

    name: str
    elements: int  # of the rank's part
    late: bool  # whether autograd comes to it only after all that computes
    before: tuple["Doing", ...] = ()  # what is still done with it then
    times: int = 1  # how many times as large it is until that is done; 0: it is added to what was there already
    travels: bool = False  # whether it is of experts of which other ranks have copies, to be added up by itself
    shared: bool = False  # whether another part's is added to it, which is reduced for both


Doing = Work | Ask | Wait


Step = Doing | Moment
Item = Step | Gradient
