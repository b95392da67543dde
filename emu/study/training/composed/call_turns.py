"""The turns of optical switches between the calls of a composed step.

Calls take turns on a switch in the order in which they begin in the step without turns, as requests do in a replay
(`emu.trace.replay.switch_turns`). Turns within a call are part of its time. M calls, Q distinct requests, K kinds of switches.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.replay.switch_turns import SwitchStates


class CallTurns(NamedTuple):
    """The turns of a composed step: each is a delay after some calls and before others."""

    turn_fs: int  # ticks of each
    total: int  # number of turns
    before: tuple[I64, I64]  # a turn, and a call that must end first
    after: tuple[I64, I64]  # a call, and a turn that it waits for


def call_turns(turn_fs: int, states: Sequence[SwitchStates], request: I64, began: I64, ended: I64) -> CallTurns:
    """Return the turns between the calls of a step; the first state of a switch needs no turn.

    Args:
        turn_fs: The ticks that a switch takes to turn.
        states: [Q] the states of switches that each distinct request needs.
        request: [M] the distinct request of each call.
        began: [M] the tick at which each call begins in the step without turns.
        ended: [M] the tick at which each ends there.
    """
    first, last = _by_kind(states)
    in_order, total = np.lexsort((ended, began)), 0
    before, after = [np.empty((2, 0), np.int64)], [np.empty((2, 0), np.int64)]
    for of_first, of_last in zip(first.T, last.T, strict=True):
        calls = in_order[of_first[request[in_order]] >= 0]
        own = request[calls]
        period = np.concatenate(([0], np.cumsum(of_last[own[:-1]] != of_first[own[1:]])))[: len(calls)]
        turns = int(period.max(initial=0))
        early, late = period < turns, period > 0
        before.append(np.stack((total + period[early], calls[early])))
        after.append(np.stack((calls[late], total + period[late] - 1)))
        total += turns
    (turn, earlier), (later, awaited) = (np.concatenate(each, axis=1) for each in (before, after))
    return CallTurns(turn_fs, total, (turn, earlier), (later, awaited))


def _by_kind(states: Sequence[SwitchStates]) -> tuple[I64, I64]:
    """Return [Q, K] the first and the last states of switches, -1 if unused; switches used alike by all are one kind."""
    switches = 1 + max((int(each.switch.max(initial=-1)) for each in states), default=-1)
    found = np.full((2, len(states), switches), -1)
    for number, each in enumerate(states):
        found[:, number, each.switch] = each.first, each.last
    kinds = np.unique(found.reshape(-1, switches), axis=1).reshape(2, len(states), -1)
    return kinds[0], kinds[1]
