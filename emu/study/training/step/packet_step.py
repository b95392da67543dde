"""A step whose time in the fluid fabric is known, timed again packet by packet."""

import time
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np

from emu.arrays import F64, I64
from emu.errors import must_be
from emu.fabric.busy_window import TimedGraph
from emu.fabric.graph import Timeline
from emu.fabric.packet_fabric import ADDING_ASSUMED, PacketFabric
from emu.fabric.run import Spread, check_seeds, spread_of
from emu.study.choice.chooser import is_automatic
from emu.study.fabric_check import check_fabric, unchecked
from emu.study.packet_figures import figures_of
from emu.study.training.step.step import TimedTrace
from emu.trace.replay.packet_replay import PacketReplay, route_keys, schedules_in
from emu.trace.replay.replay import SizeError, TraceLayout, replay_timeline
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.activity import busy_shares
from emu.trace.report.report import StepReport, report
from emu.units import format_size

CHOSEN_BY_FLUID = "algorithms were chosen by the fluid fabric's times; by packets others may be faster"


def refuse_composed(command: str, most_events: int, events: int, mend: str) -> NoReturn:
    """Refuse packets for a step that is composed of few ranks.

    Args:
        command: The command, which begins the line.
        most_events: The most events of all ranks of a step that is timed whole.
        events: Those of the step; where they are no more than the most, the graph has too many tasks.
        mend: What the user may do instead.

    Raises:
        InputError: Always.
    """
    is_many = events > most_events
    name, most = ("events of all ranks", most_events) if is_many else ("computations and messages", 2**24)
    what = f"at most {most} where --fabric is packets, which need the whole graph"
    raise must_be(command, name, what, events if is_many else f"more than {most}", mend)


def by_packets(timed: TimedTrace, fabric: PacketFabric, perturb: int = 0) -> TimedTrace:
    """Return a step timed by packets, by the algorithms that serve it in the fluid fabric; its fluid time is in the figures.

    Args:
        timed: The step in the fluid fabric, which is not composed.
        fabric: The settings of the packet engine.
        perturb: The number of perturbed starts over which its time is spread as well.

    Raises:
        InputError: The trace has too many tasks, the network does not fit, the run would be larger than its budget, or
            `perturb` is 1.
        RunError: Packets wait for one another in a circle.
    """
    if perturb:
        check_seeds(perturb)
    fabric = fabric.on(timed.topology)
    began = time.perf_counter()
    replay = packet_replay(timed, fabric)
    run = replay.run()
    found = report(timed.trace, replay.replayed, run.timeline)
    wall_s = time.perf_counter() - began
    return replace(
        timed,
        replayed=replay.replayed,
        timeline=run.timeline,
        report=found,
        link_busy=_link_busy(replay, run.timeline, found),
        spread=_spread(replay, perturb) if perturb else None,
        wall_fabric_s=wall_s,
        engine_assumed=packet_assumptions(timed, fabric),
        packets=figures_of(run, fabric, timed.topology, timed.report.step_time_s),
    )


def _link_busy(replay: PacketReplay, timeline: Timeline, found: StepReport) -> F64:
    """Return [L] the share of the step for which each link is busy at full rate.

    If packets take other paths than that of the hash, it is the share of the whole run, by all that the links carried.
    """
    if replay.fabric.network.route == "hash":
        return busy_shares(replay.replayed, timeline, found.began_fs, found.ended_fs)
    return timeline.busy_s(replay.replayed.graph.capacity_Bps) / (timeline.end_s or 1.0)


def packet_assumptions(timed: TimedTrace, fabric: PacketFabric) -> tuple[str, ...]:
    """Return the sentences that the packets add to those on which a step rests."""
    return (*fabric.assumptions, ADDING_ASSUMED, *((CHOSEN_BY_FLUID,) if is_automatic(timed.choice.chooser) else ()))


def packet_replay(timed: TimedTrace, fabric: PacketFabric) -> PacketReplay:
    """Return a trace whose step was timed, with packets that can run it by the same algorithms."""
    return PacketReplay(_layout(timed), fabric)


def _layout(timed: TimedTrace) -> TraceLayout:
    """Return the trace of a timed step on its topology, with what served it."""
    return TraceLayout(timed.trace, timed.choice, timed.topology, timed.device, timed.dtype)


def checked(timed: TimedTrace, fabric: PacketFabric) -> TimedTrace:
    """Return a step with the check of its fluid time by packets, in the window in which the fabric has most to do.

    Args:
        timed: The step in the fluid fabric, which is not composed.
        fabric: The packets.
    """
    layout, fabric = _layout(timed), fabric.on(timed.topology)
    try:
        replayed = layout.build_graph(None)
    except SizeError as error:  # symmetry, or delays, made it small
        return replace(timed, fabric_check=unchecked(fabric.network.kind, str(error)))
    timeline = replay_timeline(layout, replayed)
    inside = timeline.start_fs >= timed.report.began_fs
    inside &= timeline.start_fs < timed.report.ended_fs
    source = TimedGraph(
        replayed.graph.on_ways(timeline.way), timeline, route_keys(replayed), np.where(inside, _requests(replayed), -1)
    )
    return replace(timed, fabric_check=check_fabric(source, timed.topology, fabric, partial(batch_name, layout)))


def _requests(replayed: ReplayGraph) -> I64:
    """Return [V] the number of the batch of calls that each task of a graph without delays is of; -1: none."""
    found = np.full(replayed.graph.n_tasks, -1, np.int64)
    for number, tasks, _ in schedules_in(replayed):
        found[tasks] = number
    return found


def batch_name(layout: TraceLayout, number: int) -> str:
    """Return the name of a batch of calls of a trace, such as `dp all_reduce of 836.2 KiB in 2 groups of 4`."""
    batch = layout.batches[number]
    axis = layout.trace.groups[layout.numbers.index(batch.what.communicator)].axis
    return request_name(axis, batch.what.name, batch.what.size_bytes, batch.ranks)


def request_name(axis: str, name: str, size_bytes: int, ranks: I64) -> str:
    """Return the name of a request of some groups.

    Args:
        axis: The axis of the groups, or "".
        name: The operation.
        size_bytes: The bytes of each request.
        ranks: [groups, members] the ranks.
    """
    groups, members = ranks.shape
    among = f"in {groups} groups of {members}" if groups > 1 else f"among {members}"
    return f"{axis + ' ' * bool(axis)}{name} of {format_size(size_bytes)} {among}"


def _spread(replay: PacketReplay, runs: int) -> Spread | None:
    """Return the spread of the step by packets over perturbed starts; None as in `spread_of`."""
    trace, replayed = replay.layout.trace, replay.replayed
    times = [report(trace, replayed, replay.run(i).timeline).step_time_s for i in range(runs)]
    return spread_of(times, replayed.graph.n_tasks)
