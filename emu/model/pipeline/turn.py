"""One turn of a place of a pipeline, and the words for its kinds."""

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
