"""Turns of optical switches between messages: a turn is a delay after some messages and before others.

Letters: M messages, Q switches that each needs, A = M Q uses, T turns.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, column
from emu.errors import InputError


class TornError(InputError):
    """The error of a schedule that needs an optical switch in two states in one round, so that the topology cannot carry it."""


class SwitchTurns(NamedTuple):
    """The turns of optical switches: delay tasks, with the messages before and after each turn.

    `before` and `after` are pairs of columns: a turn and a message that it waits for, and a message and a turn that it waits
    for.
    """

    total: int  # number of turns, T
    before: tuple[I32, I32]  # turn, and message that must be delivered first
    after: tuple[I32, I32]  # message, and turn that it waits for


def turns_of(message: I32, when: I32, switch: I64, state: I64) -> SwitchTurns:
    """Return the turns of every switch, in the order of the rounds; the first state of a switch needs no turn.

    Args:
        message: [M] the number of each message in the graph.
        when: [M] the round of each message.
        switch: [M, Q] the switches that each message needs; -1 for none.
        state: [M, Q] the state of each switch that the message needs.

    Raises:
        TornError: Messages of one round need one switch in two states.
    """
    needed = np.nonzero(switch >= 0)
    uses = (switch[needed], when[needed[0]].astype(np.int64), state[needed])
    order = np.lexsort(uses[::-1])
    which, turn_when, wanted = (use[order] for use in uses)
    by = column(message[needed[0]][order], np.int32)
    same = which[1:] == which[:-1]
    turned = same & (wanted[1:] != wanted[:-1])
    torn = np.flatnonzero(turned & (turn_when[1:] == turn_when[:-1]))
    if len(torn):
        at = torn[0] + 1
        raise TornError(
            f"schedule: round {turn_when[at]} needs switch {which[at]} in states {wanted[at - 1]} and {wanted[at]} at once; "
            "take another algorithm, or put these messages in rounds of their own"
        )
    period = np.concatenate(([0], np.cumsum(turned | ~same))) if len(by) else np.zeros(0, np.int64)
    number = np.cumsum(np.concatenate(([False], turned))) - 1 if len(by) else period  # of the latest turn of any switch
    opens = np.flatnonzero(np.concatenate(([False], turned)))  # the first use of each period that a turn opens
    return _turns(period, number, opens, by)


def _turns(period: I64, number: I64, opens: I64, by: I32) -> SwitchTurns:
    """Return the turns of switches from their periods: a period is all messages in a row that need a switch in one state.

    A turn waits for all messages of the period before it, and all messages of its own period wait for it.
    """
    opened = np.full(len(period) and int(period[-1]) + 2, -1)
    opened[period[opens]] = number[opens]
    own = opened[period]  # the turn that opens the period of each use, -1: none
    following = opened[period + 1]  # the turn that ends it
    ends, waits = np.flatnonzero(following >= 0), np.flatnonzero(own >= 0)
    before = column(following[ends], np.int32), by[ends]
    return SwitchTurns(len(opens), before, (by[waits], column(own[waits], np.int32)))
