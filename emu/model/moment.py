"""The moments of a pass: at some sharded weights come or go, at some the results of requests are needed.

Events and memory of a pass are walked from one moment of the first kind to the next.
"""

from typing import NamedTuple


class Moment(NamedTuple):
    """A moment of the pass of one layer; requests that are held under its name are awaited then."""

    name: str


# A block of experts, whose weights are sharded apart from those of their layer, begins or ends: in a forward, in a forward that
# is recomputed before a backward, and in a backward.
ENTER, ENTER_AGAIN, ENTER_BACKWARD = Moment("enter"), Moment("enter again"), Moment("enter backward")
LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD = Moment("leave"), Moment("leave again"), Moment("leave backward")
LOSS_GRADIENT = Moment("loss gradient")  # the gradient of the loss is there, and the backward begins
