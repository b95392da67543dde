"""Orders of a pipeline that split a backward pass in two, so that weight gradients fill bubbles.

P places with two stages each, V-shaped: the second is the mirror of the first. M microbatches. Sources: Qi et al., Zero Bubble
Pipeline Parallelism (2023), section 6; DeepSeek-V3 (2024), DualPipe, cut in half; as PyTorch 2.13 has them
(torch/distributed/pipelining/schedules.py).
"""

from collections import Counter, deque

from emu.model.pipeline.pipeline_order import BACKWARD, FORWARD, INPUT, WEIGHT, Turn, TurnGroup


class _Place:
    """The turns of one place; the microbatches of each stage come in their order, forward and backward."""

    def __init__(self, place: int, places: int) -> None:
        self.stages = (place, 2 * places - 1 - place)
        self.done: Counter[tuple[int, bool]] = Counter()
        self.left: deque[Turn] = deque()  # input gradients whose weight gradients are still to come
        self.found: list[TurnGroup] = []

    def take(self, *turns: tuple[int, str]) -> None:
        """Add turns that run together, each as the first stage (0) or the second (1) and the kind of pass."""
        self.found.append(tuple(self._next(self.stages[which], what) for which, what in turns))

    def take_weights(self, which: int = -1) -> None:
        """Add the weight gradients of the oldest backward pass that lacks them; with `which`, of that stage."""
        turn = next((t for t in self.left if which < 0 or t.stage == self.stages[which]), None)
        if turn is not None:
            self.left.remove(turn)
            self.found.append((turn._replace(what=WEIGHT),))

    def _next(self, stage: int, what: str) -> Turn:
        turn = Turn(stage, what, self.done[stage, what == FORWARD])
        self.done[stage, what == FORWARD] += 1
        if what == INPUT:
            self.left.append(turn)
        return turn


def zbv(place: int, places: int, microbatches: int) -> list[TurnGroup]:
    """Return the turns of the order ZB-V for one place.

    First come forwards; then a forward and a backward of either stage in turn; then backwards and the remaining weight
    gradients. With fewer microbatches than fill the pipeline, the order is that of a full pipeline without the missing
    microbatches.
    """
    own, count = _Place(place, places), max(2 * places - 1, microbatches)
    for _ in range(2 * (places - place) - 1):
        own.take((0, FORWARD))
    for _ in range(place):
        own.take((1, FORWARD))
        own.take((0, FORWARD))
    for _ in range(places - place):
        own.take((1, FORWARD))
        _take_both(own, 1)
    for _ in range(count - places):
        if own.done[place, True] < count:
            own.take((0, FORWARD))
        _take_both(own, 0)
        own.take((1, FORWARD))
        _take_both(own, 1)
    for _ in range(place):
        own.take((0, INPUT))
        own.take((1, INPUT))
    for _ in range(places - place):
        own.take((0, INPUT))
        own.take_weights(0)
    for which in (1, 0):
        for _ in range(place):
            own.take_weights(which)
    return [turns for turns in own.found if turns[0].microbatch < microbatches]


def _take_both(own: _Place, which: int) -> None:
    own.take((which, INPUT))
    own.take_weights(which)


def dualpipev(place: int, places: int, microbatches: int) -> list[TurnGroup]:
    """Return the turns of the order DualPipeV for one place.

    A forward of one stage and a backward of the other run together; at the ends of the step backward passes are split.
    """
    own, after = _Place(place, places), places - place - 1
    for _ in range(2 * after):
        own.take((0, FORWARD))
    for _ in range(place + 1):
        own.take((0, FORWARD))
        own.take((1, FORWARD))
    for _ in range(after):
        own.take((1, INPUT))
        own.take_weights()
        own.take((1, FORWARD))
    for number in range(microbatches - 2 * places + place + 1):
        if number == 0 and after == 0:
            own.take((0, FORWARD))
            own.take((1, BACKWARD))
        else:
            own.take((0, FORWARD), (1, BACKWARD))
        own.take((1, FORWARD), (0, BACKWARD))
    for _ in range(after):
        own.take((1, BACKWARD))
        own.take((1, FORWARD), (0, BACKWARD))
    # The second half of the last backwards is taken in two.
    for number in range(2 * place + 2):
        own.take((1 - number % 2, BACKWARD if number <= place else INPUT))
    for _ in range(after):
        own.take_weights()
        own.take((0, INPUT))
    for _ in range(place + 1):
        own.take_weights()
    return own.found
