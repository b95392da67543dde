"""What a part of a model does on one rank, one thing after another: computations, requests, and gradients that are there.

All amounts are of one pass of one rank. What comes next waits for a request.
"""

from typing import NamedTuple


class Work(NamedTuple):
    """A computation."""

    name: str
    flops: int
    bytes: int  # of memory traffic
    elements: int  # of the activations' dtype, among them


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
    held: bool = False  # whether it is not waited for until `Wait`


class Wait(NamedTuple):
    """What was asked for and held is needed now."""


class Gradient(NamedTuple):
    """The gradient of a parameter is there, whole for the rank's tokens."""

    name: str
    elements: int  # of the rank's part
    late: bool  # whether autograd comes to it only after all that computes
    before: tuple["Doing", ...] = ()  # what is still done with it then
    times: int = 1  # how many times as large it is until that is done


Doing = Work | Ask | Wait


class Turn(NamedTuple):
    """The loss has its gradient: the backward comes to the module itself."""


Item = Doing | Gradient | Turn
