"""Turns of optical switches in a replay: a switch keeps its state, and turns if the next request needs another.

The requests of a trace take turns on a switch in the order in which all their members have entered them, as a replay without
turns has it. Where a member goes on before others have come, as after a broadcast, that order can let a rank wait for itself.
Then messages take turns one by one, in the order in which they start without turns. Letters: B batches of calls, M messages,
V tasks of the graph, Q switches that each message crosses.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.fabric.build import Builder
from emu.fabric.lowering.circuit_turns import SwitchTurns, turns_of
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.topology import CHANNELS, Circuits, Topology


class TurnOrder(NamedTuple):
    """The order in which requests (or messages) use optical switches, known from a replay in which switches take no time.

    It has the tick at which the last member of each call enters and, if messages take turns, the start of each task.
    """

    met_fs: I64  # [B] the tick at which the last member enters each
    start_fs: I64 | None = None  # [V] the tick at which each task starts; None: requests take turns, not messages


class SwitchStates(NamedTuple):
    """The S optical switches that a request needs, and the state in which it needs each first, and last."""

    switch: I64  # [S] ascending
    first: I64  # [S]
    last: I64  # [S]


def switch_states(circuits: Circuits, placed: Sequence[PlacedSchedule]) -> SwitchStates:
    """Return the states of switches that a request needs.

    Args:
        circuits: The switches.
        placed: The placed schedules of the request, of one group each; groups take turns in this order.

    Raises:
        TornError: Messages of one round need one switch in two states.
    """
    uses = []
    for number, each in enumerate(placed):
        switch, state = _needs(circuits, each)
        when = np.broadcast_to(each.classes.messages.when[:, None], switch.shape)
        turn = np.full(switch.shape, number)
        uses.append(np.stack([of[switch >= 0].astype(np.int64) for of in (switch, turn, when, state)]))
    joined = np.concatenate(uses, axis=1)
    switch, *_, state = joined[:, np.lexsort(joined[2::-1])]
    starts = np.flatnonzero(np.diff(switch, prepend=-1))
    return SwitchStates(switch[starts], state[starts], state[np.append(starts, len(switch))[1:] - 1])


def add_turns(
    builder: Builder, topology: Topology, placed: Sequence[PlacedSchedule], firsts: I64, order: TurnOrder | None
) -> None:
    """Add the turns of all switches, each after the messages before it and before the messages after it.

    Args:
        builder: The graph with all messages.
        topology: The topology, whose switches may turn.
        placed: [B] the placed schedule of each batch, of one call on one group, lowered without turns.
        firsts: [B] the task of the first message of each.
        order: The order of turns; None: switches do not turn.

    Raises:
        TornError: Messages of one round of a request need one switch in two states.
    """
    circuits = topology.circuits
    if circuits is None or order is None:
        return
    turns = _turns(circuits, placed, firsts, order)
    tasks = builder.tasks(np.full(turns.total, circuits.switching_fs))
    (turn, earlier), (later, awaited) = turns.before, turns.after
    builder.wait(tasks[turn], earlier)
    builder.wait(later, tasks[awaited])


def _turns(circuits: Circuits, placed: Sequence[PlacedSchedule], firsts: I64, order: TurnOrder) -> SwitchTurns:
    """Return the turns between the messages of all batches; see `add_turns` for the arguments."""
    needed = {each: _needs(circuits, each) for each in dict.fromkeys(placed)}
    place = np.empty(len(placed), np.int64)
    place[np.argsort(order.met_fs, kind="stable")] = np.arange(len(placed))
    most = max((switch.shape[1] for switch, _ in needed.values()), default=0)
    parts = []
    for number, each in enumerate(placed):
        switch, state = needed[each]
        rounds = each.classes.messages.when.astype(np.int64)
        tasks = firsts[number] + np.arange(len(rounds))
        starts = np.zeros(len(rounds), np.int64) if order.start_fs is None else order.start_fs[tasks]
        keys = np.stack((starts, np.full(len(rounds), place[number]), rounds))
        parts.append((tasks, keys, _widened(switch, most), state))
    if not parts:
        return turns_of(*(np.zeros(0, np.int32),) * 2, *(np.zeros((0, 0), np.int64),) * 2)
    message, when, switches, states = zip(*parts, strict=True)
    joined = np.concatenate([_widened(state, most) for state in states])
    _, rank = np.unique(np.concatenate(when, axis=1), axis=1, return_inverse=True)
    return turns_of(column(np.concatenate(message), np.int32), column(rank.ravel(), np.int32), np.concatenate(switches), joined)


def _needs(circuits: Circuits, placed: PlacedSchedule) -> tuple[I64, I64]:
    """Return [M, Q] the switches that the messages of a request need (-1: none), and [M, Q] the states of these.

    Raises:
        TornError: Messages of one round need one switch in two states.
    """
    messages, node = placed.classes.messages, placed.nodes[0]
    key = placed.key * CHANNELS + messages.channel.astype(np.int64)
    switch, state = circuits.needs(
        column(node[messages.src], np.int64), column(node[messages.dst], np.int64), column(key, np.int64)
    )
    turns_of(column(np.arange(len(key)), np.int32), messages.when, switch, state)
    return switch, state


def _widened(of: I64, most: int) -> I64:
    """Return an array with columns of -1 appended, up to `most` columns."""
    return np.pad(of, ((0, 0), (0, most - of.shape[1])), constant_values=-1)
