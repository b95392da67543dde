"""Optical switches that turn during a collective."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.topology import Circuits

MS = 10**12
BLOCK = 10**6


def partner_state(src, dst, key):
    """Each NPU has one switch, which must point to the other end."""
    return np.stack((src, dst), axis=-1), np.stack((dst, src), axis=-1)


def end_ms(plan, turn_ms, needs=partner_state, **options):
    fabric = ideal(plan, "rank", bandwidth_Bps=BLOCK * 1000.0, latency_fs=MS)
    if turn_ms is not None:
        fabric = replace(fabric, circuits=Circuits(needs, turn_ms * MS))
    piece = lower(FabricJob(plan, np.full(plan.n_slots, BLOCK), fabric, np.arange(plan.n_participants), **options))
    return run_graph(piece.graph).end_fs.max() / MS


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_a_binary_exchange_turns_between_its_rounds_and_not_before_the_first(n):
    plan = schedule("all_to_all", "binary-exchange", n)
    rounds = int(np.log2(n))
    assert end_ms(plan, 70) == pytest.approx(end_ms(plan, None) + 70 * (rounds - 1), rel=1e-12)


def test_a_sender_spends_its_overhead_after_the_turn():
    plan = Schedule.build(3, 2, [Sends(0, 1, 0), Sends(0, 2, 1)])
    assert end_ms(plan, 5, send_overhead_fs=MS) == (1 + 2) + 5 + (1 + 2)


def test_a_ring_whose_switches_point_one_way_each_turns_never():
    plan = schedule("all_gather", "ring", 6)

    def ports(src, dst, key):
        return np.stack((2 * src, 2 * dst + 1), axis=-1), np.stack((dst, src), axis=-1)

    assert end_ms(plan, 70, ports) == end_ms(plan, None)


def test_a_message_that_needs_no_switch_waits_for_none():
    plan = schedule("all_to_all", "binary-exchange", 8)

    def free(src, dst, key):
        return np.full((len(src), 1), -1), np.zeros((len(src), 1), np.int64)

    assert end_ms(plan, 70, free) == end_ms(plan, None)


def test_a_turn_waits_until_what_it_cuts_off_is_delivered():
    # Rank 0 sends to 1, then to 2; nothing but its switch makes the second message wait for the first's delivery.
    plan = Schedule.build(3, 2, [Sends(0, 1, 0, channel=0), Sends(0, 2, 1, channel=1)])
    assert end_ms(plan, None) == 3  # two bodies share the port, then the head
    assert end_ms(plan, 5) == 2 + 5 + 2


def test_a_turn_back_is_a_turn():
    plan = Schedule.build(3, 3, [Sends(0, 1, 0), Sends(0, 2, 1), Sends(0, 1, 2)])
    assert end_ms(plan, 5) == 3 * 2 + 2 * 5


def test_two_states_at_once_are_refused():
    plan = schedule("all_to_all", "at-once", 4)
    with pytest.raises(
        InputError, match=r"switch 0 in states \d and \d at once; take another algorithm, or put these messages in"
    ):
        end_ms(plan, 70)
