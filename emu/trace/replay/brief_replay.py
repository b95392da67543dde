"""The timing of a trace with few tasks: a collective becomes one delay where the timeline proves that this changes nothing."""

from functools import partial

from emu.fabric.graph import Timeline, name_tasks
from emu.fabric.run import run_graph
from emu.trace.replay.delay import links_were_exclusive, staggered_instances
from emu.trace.replay.replay import ReplayGraph, TraceLayout, event_name

WORTH = 2**17  # tasks that delays must save
_TRIES = 3  # attempts with delays, before every collective becomes messages


def brief_replay(layout: TraceLayout, worth: int = WORTH) -> tuple[ReplayGraph, Timeline]:
    """Return the graph of a trace and its timeline; every event has the time that it has when all messages are in the graph.

    Args:
        layout: The trace on its fabric.
        worth: The number of tasks that delays must save; if they save fewer, all collectives become messages.

    Raises:
        InputError: an event that ends beyond the clock.
        SizeError: The trace has more than 2**24 computations and messages of ranks that no symmetry makes equal.
    """
    domain = layout.domain()
    pieces = layout.pieces(domain)
    delays = layout.delays(pieces, worth)
    for _ in range(_TRIES):
        if not delays:
            break
        replayed = layout.build_graph(domain, pieces, delays)
        timeline = replay_timeline(layout, replayed)
        late = staggered_instances(replayed.entries, replayed.begins, replayed.instance, timeline)
        placed = [(delay, int(replayed.firsts[i])) for i, delay in delays.items()]
        if not late and links_were_exclusive(placed, replayed.graph, timeline):
            return replayed, timeline
        delays = {i: delay for i, delay in delays.items() if i not in late} if late else {}
    replayed = layout.build_graph(domain, pieces)
    return replayed, replay_timeline(layout, replayed)


def replay_timeline(layout: TraceLayout, replayed: ReplayGraph) -> Timeline:
    """Return the start and the end of each task of a replayed trace.

    Raises:
        InputError: an event that ends beyond the clock.
    """
    with name_tasks("trace", partial(event_name, layout.trace, replayed)):
        return run_graph(replayed.graph)
