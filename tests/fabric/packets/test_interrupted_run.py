"""A run by packets that takes long or that a signal ends: what is said of it."""

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


def test_a_long_run_says_every_few_seconds_how_far_it_is_and_what_is_left(monkeypatch, caplog) -> None:
    graph = messages(STAR, [(0, 1, 2**20), (2, 3, 4 * 2**20)])
    monkeypatch.setattr(packet_run, "_STRIDE", 1000)
    with caplog.at_level("INFO", "emu"):
        quiet = packet_run.run_packets(graph, STAR, BARE)
        assert not [line for line in caplog.messages if line.startswith("packets: ")]
        monkeypatch.setattr(packet_run, "SILENCE_S", 0.0)
        told = packet_run.run_packets(graph, STAR, BARE)
    forecast, *lines = [line for line in caplog.messages if line.startswith("packets: ")]
    assert forecast == "packets: a run has about 5120 events, which takes about 0 s"
    assert len(lines) == quiet.n_events // 1000
    form = r"packets: [01] of 2 tasks were over at \d.* us, after (\d+) events of about 5120(, about \d+ s left)?"
    found = [re.fullmatch(form, line) for line in lines]
    assert [int(match[1]) for match in found if match] == [1000 * (i + 1) for i in range(len(lines))]
    assert [" left" in line for line in lines] == [1000 * (i + 1) >= 5120 / 5 for i in range(len(lines))]
    assert (told.timeline.end_fs == quiet.timeline.end_fs).all()
