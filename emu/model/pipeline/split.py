"""Orders of a pipeline that take a backward in two, so that gradients of weights fill what would be a bubble.

P places with two stages each, V-shaped: the second is the mirror of the first. M microbatches. Sources: Qi et al., Zero Bubble
Pipeline Parallelism (2023), section 6; DeepSeek-V3 (2024), DualPipe, cut in half; as PyTorch 2.13 has them
(torch/distributed/pipelining/schedules.py).
"""

from collections import Counter, deque

from emu.model.pipeline.turn import BACKWARD, FORWARD, INPUT, WEIGHT, Together, Turn


class _Place:
    """The turns of one place; of each stage the microbatches come in their order, forward and backward."""

    def __init__(self, place: int, places: int) -> None:
        self.stages = (place, 2 * places - 1 - place)
        self.done: Counter[tuple[int, bool]] = Counter()
        self.left: deque[Turn] = deque()  # of backwards whose weights are left
        self.found: list[Together] = []

    def take(self, *turns: tuple[int, str]) -> None:
        """These together: each the first stage or the second, and what."""
        self.found.append(tuple(self._next(self.stages[which], what) for which, what in turns))

    def take_weights(self, which: int = -1) -> None:
        """Of the oldest backward that has them left; of that of a stage."""
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


def zbv(place: int, places: int, microbatches: int) -> list[Together]:
    """Forwards ahead; then a forward and a backward of either stage in turn; then backwards, and the weights that are left.

    With fewer microbatches than fill the pipeline, as if it were filled: those that are not there are left out.
    """
    own, count = _Place(place, places), max(2 * places - 1, microbatches)
    for _ in range(2 * (places - place) - 1):
        own.take((0, FORWARD))
    for _ in range(place):
        own.take((1, FORWARD))
        own.take((0, FORWARD))
    for _ in range(places - place):
        own.take((1, FORWARD))
        _both(own, 1)
    for _ in range(count - places):
        if own.done[place, True] < count:
            own.take((0, FORWARD))
        _both(own, 0)
        own.take((1, FORWARD))
        _both(own, 1)
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


def _both(own: _Place, which: int) -> None:
    own.take((which, INPUT))
    own.take_weights(which)


def dualpipev(place: int, places: int, microbatches: int) -> list[Together]:
    """A forward of one stage and a backward of the other together; the ends of the step take backwards in two."""
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
