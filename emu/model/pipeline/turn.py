"""What a place of a pipeline does at a time, in words."""

from typing import NamedTuple

FORWARD, BACKWARD = "F", "B"
INPUT, WEIGHT = "I", "W"  # a backward in two: gradients of what came in, then those of the weights
SEND, RECEIVE = "send ", "receive "  # before what is sent or received: what the forward, or the backward, of a stage gives
GATHER, DROP, REDUCE = "gather", "drop", "reduce"  # the weights of a stage, where they are sharded; its gradients


class Turn(NamedTuple):
    """What a place does next."""

    stage: int  # of all P * V; of a message the stage that sends it or takes it
    what: str
    microbatch: int = 0


Together = tuple[Turn, ...]  # turns between which no message is asked for
