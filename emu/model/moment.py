"""The moments of a pass: at some sharded weights come or go, at some the results of requests are needed.

Events and memory of a pass are walked from one moment of the first kind to the next.
"""

Moment = str  # the name of a moment in the pass of one layer; requests that are held under it are awaited then
# A block of experts, whose weights are sharded apart from those of their layer, begins or ends: in a forward, in a forward that
# is recomputed before a backward, and in a backward.
ENTER, ENTER_AGAIN, ENTER_BACKWARD = "enter", "enter again", "enter backward"
LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD = "leave", "leave again", "leave backward"
LOSS_GRADIENT = "loss gradient"  # the gradient of the loss is there, and the backward begins
