"""A run by packets that a signal ends: what is said of it."""

import re

import pytest

from emu.fabric.engine.packets import packet_run
from emu.fabric.engine.packets.packet_layout import PacketEngine
from emu.fabric.engine.packets.packet_loop import advance_packets
from tests.fabric.packets.packet_cases import BARE, STAR, messages


def test_an_interrupted_run_says_how_far_it_came(monkeypatch) -> None:
    def stop(engine: PacketEngine, _: int) -> int:
        advance_packets(engine, 1000)
        raise KeyboardInterrupt

    monkeypatch.setattr(packet_run, "advance_packets", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        packet_run.run_packets(messages(STAR, [(0, 1, 4096), (2, 3, 4 * 2**20)]), STAR, BARE)
    assert re.fullmatch(r"packets: 1 of 2 tasks were over at \d.* us, after 1000 events", stopped.value.__notes__[0])
