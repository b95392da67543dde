"""The turns of each place of a pipeline: which microbatch of which stage it takes forward or backward, and what it passes on.

P places, V virtual stages a place, M microbatches. Source: Narayanan et al., Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM (SC21), section 2.2; where sends and receives stand, as PyTorch 2.13 puts them
(torch/distributed/pipelining/schedules.py).
"""

from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from emu.model.order import stages_of

FORWARD, BACKWARD = "F", "B"
SEND, RECEIVE = "send ", "receive "  # before what is sent or received: what the forward, or the backward, of a stage gives
GATHER, DROP, REDUCE = "gather", "drop", "reduce"  # the weights of a stage, where they are sharded; its gradients


class Turn(NamedTuple):
    """What a place does next."""

    stage: int  # of all P * V; of a message the stage that sends it or takes it
    what: str
    microbatch: int = 0


def turns(order: str, place: int, places: int, virtual: int, microbatches: int) -> tuple[Turn, ...]:
    """The forwards and backwards of one place, in order."""
    if order == "gpipe":
        both = ((FORWARD, number) for number in range(microbatches)), ((BACKWARD, number) for number in range(microbatches))
        return tuple(Turn(place, *each) for half in both for each in half)
    return _one_and_one(place, places, virtual, microbatches)


def _one_and_one(place: int, places: int, virtual: int, microbatches: int) -> tuple[Turn, ...]:
    """Some forwards ahead, then a forward and a backward in turn, then the backwards that are left.

    Stages take turns every `a_round` microbatches: forwards the first stage first, backwards the last first.
    """
    a_round = microbatches // max(1, microbatches // places)
    mine, total = stages_of(place, places, virtual, "interleaved"), virtual * microbatches
    each_hop = 2 if virtual > 1 else 1  # a forward and a backward pass between two stages of one place
    ahead = min(total, (virtual - 1) * a_round + each_hop * (places - 1 - place))
    done: Counter[tuple[int, str]] = Counter()

    def turn(what: str, step: int) -> Turn:
        chunk = step // a_round % virtual
        stage = mine[chunk if what == FORWARD else -1 - chunk]
        done[stage, what] += 1
        return Turn(stage, what, done[stage, what] - 1)

    found = [turn(FORWARD, step) for step in range(ahead)]
    for step in range(total):
        if ahead + step < total:
            found.append(turn(FORWARD, ahead + step))
        found.append(turn(BACKWARD, step))
    return tuple(found)


@cache
def all_turns(order: str, places: int, virtual: int, microbatches: int) -> tuple[tuple[Turn, ...], ...]:
    """The turns of all places, with what they send and receive."""
    own = [turns(order, place, places, virtual, microbatches) for place in range(places)]
    return with_messages(own, places * virtual, microbatches)


def with_messages(of_places: Sequence[Sequence[Turn]], stages: int, microbatches: int) -> tuple[tuple[Turn, ...], ...]:
    """The turns of all places with what they send and receive, so that no two wait for each other.

    A send follows what it sends at once; its receive then comes next at the other place, as far as that has got when each
    place takes one turn after another.
    """
    place_of = {turn.stage: place for place, own in enumerate(of_places) for turn in own}
    left = [deque(_with_weights(own, microbatches)) for own in of_places]
    found: list[list[Turn]] = [[] for _ in of_places]
    came: list[set[Turn]] = [set() for _ in of_places]
    while any(left):
        for place, own in enumerate(left):
            if own and _takes_from(own[0], place_of, stages) <= came[place]:
                turn = own.popleft()
                found[place].append(turn)
                to = _gives_to(turn, stages)
                if to is not None and place_of[to] != place:
                    received = Turn(to, RECEIVE + turn.what, turn.microbatch)
                    found[place].append(Turn(turn.stage, SEND + turn.what, turn.microbatch))
                    found[place_of[to]].append(received)
                    came[place_of[to]].add(received)
    return tuple(map(tuple, found))


def _gives_to(turn: Turn, stages: int) -> int | None:
    to = {FORWARD: turn.stage + 1, BACKWARD: turn.stage - 1}.get(turn.what, -1)
    return to if 0 <= to < stages else None


def _takes_from(turn: Turn, place_of: dict[int, int], stages: int) -> set[Turn]:
    """The message that a turn needs, if any."""
    source = {FORWARD: turn.stage - 1, BACKWARD: turn.stage + 1}.get(turn.what, -1)
    if not 0 <= source < stages or place_of[source] == place_of[turn.stage]:
        return set()
    return {Turn(turn.stage, RECEIVE + turn.what, turn.microbatch)}


_ACTIVE = 3  # stages of a place whose weights are whole at a time


def _with_weights(own: Sequence[Turn], microbatches: int) -> list[Turn]:
    """The turns with those that gather the weights of the next stages, drop those of others, and end a stage's gradients."""
    found: list[Turn] = []
    active: list[int] = []
    done: Counter[int] = Counter()
    for number, turn in enumerate(own):
        near = list(dict.fromkeys(later.stage for later in own[number:]))[:_ACTIVE]
        found += [Turn(stage, DROP) for stage in active if stage not in near]
        found += [Turn(stage, GATHER) for stage in near if stage not in active]
        active = [stage for stage in active if stage in near] + [stage for stage in near if stage not in active]
        found.append(turn)
        done[turn.stage] += turn.what == BACKWARD
        if turn.what == BACKWARD and done[turn.stage] == microbatches:
            found.append(Turn(turn.stage, REDUCE))
    return [*found, *(Turn(stage, DROP) for stage in active)]
