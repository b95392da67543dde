"""The orders of a pipeline: the turns of each place, that is, passes of microbatches and messages between stages.

Letters: P stages of ranks, V virtual stages of a rank, M microbatches. Two orders split a backward pass in two, so that weight
gradients fill bubbles, and are V-shaped: the second stage of a place is the mirror of the first. Sources: GPipe (Huang et al.,
2019); 1F1B and interleaved 1F1B (Narayanan et al., SC21, section 2.2); ZB-V (Qi et al., Zero Bubble Pipeline Parallelism
(2023), section 6); DualPipeV (DeepSeek-V3 (2024), DualPipe, cut in half). All are as PyTorch 2.13 has them, and so are the
places of sends and receives (torch/distributed/pipelining/schedules.py).
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

FORWARD, BACKWARD = "F", "B"
INPUT, WEIGHT = "I", "W"  # a split backward pass: gradients of the inputs, then those of the weights
SEND, RECEIVE = "send ", "receive "  # prefixes of FORWARD or BACKWARD: the message has the result of that pass
GATHER, DROP, REDUCE = "gather", "drop", "reduce"  # gather or drop a stage's sharded weights; reduce its gradients


class Turn(NamedTuple):
    """One entry of the order of a pipeline, for the ranks at one of its places.

    A turn is a forward or backward pass of one microbatch, a message of such a pass, or an action on a stage's weights.
    """

    stage: int  # of all P * V stages; for a message, the stage that sends or receives it
    what: str
    microbatch: int = 0


TurnGroup = tuple[Turn, ...]  # turns without a message between them


class Order(NamedTuple):
    """The requirements of one pipeline order on the virtual stages (V) of a rank and on the microbatches (M) of P places.

    `splits` says whether gradients of inputs and of weights are separate turns; `wraps` whether stages run forth and back
    (V-shaped).
    """

    virtual: tuple[int, ...]  # the allowed V; (): 2 or more
    times: int  # the fewest M as a multiple of P; 0: any
    rounds: bool = False  # True if M must divide into equal rounds of at least P
    splits: bool = False  # True if gradients of inputs and of weights are separate turns
    wraps: bool = False  # True if the second stage of a rank mirrors its first (V-shaped)
    executed: int = 0  # the fewest M as a multiple of P, if real ranks need more than the order

    def takes(self, virtual: int) -> bool:
        """Return True if the order runs with a number of virtual stages of a rank."""
        return virtual in self.virtual if self.virtual else virtual > 1

    def least(self, stages: int, *, executed: bool) -> int:
        """Return the fewest microbatches with which the order runs; with `executed`, on real ranks."""
        return max(1, self.times * stages, self.executed * stages * executed)

    def fits(self, microbatches: int, stages: int, *, executed: bool = True) -> bool:
        """Return True if the order runs with a number of microbatches; with `executed`, on real ranks."""
        return microbatches >= self.least(stages, executed=executed) and self.has_whole_rounds(microbatches, stages)

    def has_whole_rounds(self, microbatches: int, stages: int) -> bool:
        """Return True if the order needs no rounds, or if the microbatches divide into equal rounds."""
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
    """Return the orders that run with a number of virtual stages of a rank."""
    return [name for name, order in ORDERS.items() if order.takes(virtual)]


def stages_of(place: int, stages: int, virtual: int, name: str) -> tuple[int, ...]:
    """Return the stages of a rank at a place of its pipeline, of all P * V in the order of the model."""
    if ORDERS[name].wraps:
        return (place, 2 * stages - 1 - place)
    return tuple(place + stages * chunk for chunk in range(virtual))


class _Place:
    """The turns of the ranks at one place of a pipeline, while an order is being built; microbatches follow in their order."""

    def __init__(self, place: int, places: int) -> None:
        self.stages = (place, 2 * places - 1 - place)
        self.done: Counter[tuple[int, bool]] = Counter()
        self.left: deque[Turn] = deque()  # input gradients whose weight gradients are still to come
        self.found: list[TurnGroup] = []

    def take(self, *turns: tuple[int, str]) -> None:
        """Append turns that run together.

        Args:
            *turns: The stage of each, the first (0) or the second (1) of the place, and the kind of its pass.
        """
        self.found.append(tuple(self._next(self.stages[which], what) for which, what in turns))

    def take_weights(self, which: int) -> None:
        """Append the weight gradients of the oldest pending backward of a stage of the place; -1: of either stage."""
        turn = next((t for t in self.left if which < 0 or t.stage == self.stages[which]), None)
        if turn is not None:
            self.left.remove(turn)
            self.found.append((turn._replace(what=WEIGHT),))

    def take_each(self, times: int, *turns: tuple[int, str]) -> None:
        """Add turns one after another, and repeat this a number of times."""
        for which, what in times * turns:
            if what == WEIGHT:
                self.take_weights(which)
            else:
                self.take((which, what))

    def _next(self, stage: int, what: str) -> Turn:
        turn = Turn(stage, what, self.done[stage, what == FORWARD])
        self.done[stage, what == FORWARD] += 1
        if what == INPUT:
            self.left.append(turn)
        return turn


_OLDEST = (-1, WEIGHT)


def zbv(place: int, places: int, microbatches: int) -> list[TurnGroup]:
    """Return the turns of the order ZB-V for one place.

    First come forwards; then a forward and a backward of either stage in turn; then backwards and the remaining weight
    gradients. With fewer microbatches than fill the pipeline, the order is that of a full pipeline without the missing
    microbatches.
    """
    own, count = _Place(place, places), max(2 * places - 1, microbatches)
    own.take_each(2 * (places - place) - 1, (0, FORWARD))
    own.take_each(place, (1, FORWARD), (0, FORWARD))
    own.take_each(places - place, (1, FORWARD), (1, INPUT), (1, WEIGHT))
    for _ in range(count - places):
        if own.done[place, True] < count:
            own.take((0, FORWARD))
        own.take_each(1, (0, INPUT), (0, WEIGHT), (1, FORWARD), (1, INPUT), (1, WEIGHT))
    own.take_each(place, (0, INPUT), (1, INPUT))
    own.take_each(places - place, (0, INPUT), (0, WEIGHT))
    own.take_each(place, (1, WEIGHT))
    own.take_each(place, (0, WEIGHT))
    return [turns for turns in own.found if turns[0].microbatch < microbatches]


def dualpipev(place: int, places: int, microbatches: int) -> list[TurnGroup]:
    """Return the turns of the order DualPipeV for one place.

    A forward of one stage and a backward of the other run together; at the ends of the step backward passes are split.
    """
    own, after = _Place(place, places), places - place - 1
    own.take_each(2 * after, (0, FORWARD))
    own.take_each(place + 1, (0, FORWARD), (1, FORWARD))
    own.take_each(after, (1, INPUT), _OLDEST, (1, FORWARD))
    for number in range(microbatches - 2 * places + place + 1):
        if number == 0 and after == 0:
            own.take_each(1, (0, FORWARD), (1, BACKWARD))
        else:
            own.take((0, FORWARD), (1, BACKWARD))
        own.take((1, FORWARD), (0, BACKWARD))
    for _ in range(after):
        own.take((1, BACKWARD))
        own.take((1, FORWARD), (0, BACKWARD))
    for number in range(2 * place + 2):  # the second half of the last backwards is split
        own.take((1 - number % 2, BACKWARD if number <= place else INPUT))
    own.take_each(after, _OLDEST, (0, INPUT))
    own.take_each(place + 1, _OLDEST)
    return own.found


def turns(order: str, place: int, places: int, virtual: int, microbatches: int) -> Iterator[TurnGroup]:
    """Return the forward and backward turns of the ranks at one place of a pipeline, in order."""
    if order == "gpipe":
        both = ((FORWARD, number) for number in range(microbatches)), ((BACKWARD, number) for number in range(microbatches))
        return ((Turn(place, *each),) for half in both for each in half)
    if ORDERS[order].wraps:
        return iter((zbv if order == "zbv" else dualpipev)(place, places, microbatches))
    return ((turn,) for turn in _one_and_one(place, places, virtual, microbatches, splits=ORDERS[order].splits))


def _one_and_one(place: int, places: int, virtual: int, microbatches: int, *, splits: bool) -> Iterator[Turn]:
    """Yield the turns of a place: some forwards, then forwards and backwards alternately, then the remaining backwards.

    Stages alternate every `a_round` microbatches: forwards start with the first stage, backwards with the last. With split
    backward passes, the weight gradients of a pass come as many turns later as there are places before this one, and one hop
    needs one forward less.
    """
    a_round = microbatches // max(1, microbatches // places)
    mine, total = stages_of(place, places, virtual, "interleaved"), virtual * microbatches
    each_hop = 2 if virtual > 1 and not splits else 1  # a forward and a backward pass happen between two stages of one place
    ahead = min(total, (virtual - 1) * a_round + each_hop * (places - 1 - place))
    done: Counter[tuple[int, str]] = Counter()

    def turn(what: str, step: int) -> Turn:
        chunk = step // a_round % virtual
        stage = mine[chunk if what == FORWARD else -1 - chunk]
        done[stage, what] += 1
        return Turn(stage, what, done[stage, what] - 1)

    for step in range(ahead):
        yield turn(FORWARD, step)
    for step in range(total):
        if ahead + step < total:
            yield turn(FORWARD, ahead + step)
        yield turn(INPUT if splits else BACKWARD, step)
        if splits and step >= place:
            yield turn(WEIGHT, step - place)
    for step in range(max(0, total - place) if splits else total, total):
        yield turn(WEIGHT, step)


@cache
def all_turns(order: str, places: int, virtual: int, microbatches: int) -> tuple[tuple[Turn, ...], ...]:
    """Return the turns of all places of a pipeline, with their messages."""
    own = [list(turns(order, place, places, virtual, microbatches)) for place in range(places)]
    return with_messages(own, places * virtual, microbatches)


def with_messages(of_places: Sequence[Sequence[TurnGroup]], stages: int, microbatches: int) -> tuple[tuple[Turn, ...], ...]:
    """Return the turns of all places with their messages, in an order that cannot deadlock.

    A send follows directly after the turn whose result it sends. Its receive comes next at the other place, at the point that
    this place has reached if all places take one turn (or one group of turns) after another.
    """
    place_of = {turn.stage: place for place, own in enumerate(of_places) for turn in chain(*own)}
    left = [deque(with_weights(own, microbatches)) for own in of_places]
    found: list[list[Turn]] = [[] for _ in of_places]
    came: list[set[Turn]] = [set() for _ in of_places]
    while any(left):
        for place, own in enumerate(left):
            if own and all(_takes_from(turn, place_of, stages) <= came[place] for turn in own[0]):
                taken = own.popleft()
                found[place] += taken
                for turn in taken:
                    to = _gives_to(turn, stages)
                    if to is not None and place_of[to] != place:
                        kind = FORWARD if turn.what == FORWARD else BACKWARD
                        received = Turn(to, RECEIVE + kind, turn.microbatch)
                        found[place].append(Turn(turn.stage, SEND + kind, turn.microbatch))
                        found[place_of[to]].append(received)
                        came[place_of[to]].add(received)
    return tuple(map(tuple, found))


_TOWARDS = {FORWARD: 1, BACKWARD: -1, INPUT: -1}  # the offset of the stage that receives a turn's result


def _gives_to(turn: Turn, stages: int) -> int | None:
    to = turn.stage + _TOWARDS[turn.what] if turn.what in _TOWARDS else -1
    return to if 0 <= to < stages else None


def _takes_from(turn: Turn, place_of: dict[int, int], stages: int) -> set[Turn]:
    """Return, as a set, the message that a turn needs before it can run; an empty set if it needs none."""
    source = turn.stage - _TOWARDS[turn.what] if turn.what in _TOWARDS else -1
    if not 0 <= source < stages or place_of[source] == place_of[turn.stage]:
        return set()
    return {message_for(turn)}


def message_for(turn: Turn) -> Turn:
    """Return the receive that a turn needs if its input comes from another place."""
    return Turn(turn.stage, RECEIVE + (FORWARD if turn.what == FORWARD else BACKWARD), turn.microbatch)


_ACTIVE = 3  # the stages of a place that may have whole weights at a time


def with_weights(own: Sequence[TurnGroup], microbatches: int) -> list[TurnGroup]:
    """Return the turns of a place with actions on weights: gather those of the next stages, free others, reduce gradients."""
    found: list[TurnGroup] = []
    active: list[int] = []
    done: Counter[int] = Counter()
    for near, together in zip(_next_stages(own), own, strict=True):
        found += [(Turn(stage, DROP),) for stage in active if stage not in near]
        found += [(Turn(stage, GATHER),) for stage in near if stage not in active]
        active = [stage for stage in active if stage in near] + [stage for stage in near if stage not in active]
        found.append(together)
        for turn in together:
            done[turn.stage] += turn.what in (BACKWARD, WEIGHT)
            if turn.what in (BACKWARD, WEIGHT) and done[turn.stage] == microbatches:
                found.append((Turn(turn.stage, REDUCE),))
    return [*found, *((Turn(stage, DROP),) for stage in active)]


def _next_stages(own: Sequence[TurnGroup]) -> list[list[int]]:
    """Return, for each group of turns, the stages that run next.

    There are as many as may have whole weights at a time (`_ACTIVE`), and those in one group of turns with the last of them.
    """
    found, order, at = list[list[int]](), list[int](), dict[int, int]()  # all stages from a group on, and where each is next
    for number, together in reversed([*enumerate(own)]):
        stages = list(dict.fromkeys(turn.stage for turn in together))
        order = [*stages, *(stage for stage in order if stage not in stages)]
        at.update(dict.fromkeys(stages, number))
        last = at[order[:_ACTIVE][-1]]
        found.append([stage for stage in order if at[stage] <= last])
    return found[::-1]
