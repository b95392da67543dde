"""A trace timed with few tasks: collectives are delays where the timeline itself shows that this changes nothing."""

from functools import partial

from emu.fabric.named import named
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.trace.replay.delay import staggered_instances, links_were_exclusive
from emu.trace.replay.replay import TraceLayout, ReplayGraph, event_name

WORTH = 2**17  # tasks less, for which to look whether collectives may be delays
_TRIES = 3  # before all is laid message by message


def brief_replay(laying: TraceLayout, worth: int = WORTH) -> tuple[ReplayGraph, Timeline]:
    """The graph of a trace and its timeline, in which every event is as it would be message by message.

    Args:
        laying: The trace.
        worth: Of how many tasks less delays are to be tried for.

    Raises:
        InputError: an event that ends beyond the clock.
        SizeError: as `replay`.
    """
    domain = laying.domain()
    pieces = laying.pieces(domain)
    delays = laying.delays(pieces, worth)
    for _ in range(_TRIES):
        if not delays:
            break
        replayed = laying.replayed(domain, pieces, delays)
        timeline = replay_timeline(laying, replayed)
        late = staggered_instances(replayed.entries, replayed.begins, replayed.instance, timeline)
        placed = [(delay, replayed.instances[i].first) for i, delay in delays.items()]
        if not late and links_were_exclusive(placed, replayed.graph, timeline):
            return replayed, timeline
        delays = {i: delay for i, delay in delays.items() if i not in late} if late else {}
    replayed = laying.replayed(domain, pieces)
    return replayed, replay_timeline(laying, replayed)


def replay_timeline(laying: TraceLayout, replayed: ReplayGraph) -> Timeline:
    """When the tasks of a trace ran.

    Raises:
        InputError: an event that ends beyond the clock.
    """
    with named("replay", partial(event_name, laying.trace, replayed)):
        return run(replayed.graph)
