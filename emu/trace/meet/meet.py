"""Where ranks meet in a trace: the members of one collective, both ends of one message."""

from emu.collective.algorithm import Request
from emu.trace.meet.alike import alike
from emu.trace.meet.collectives import collectives
from emu.trace.meet.messages import messages
from emu.trace.meet.requests import Meetings, asked_of
from emu.trace.trace import Trace


def meetings_of(trace: Trace, dtype: str) -> list[Meetings]:
    """Every collective and message but those of set-up.

    Args:
        trace: Of all ranks.
        dtype: What float32 is timed as.

    Raises:
        InputError: an unknown dtype; members that are missing or do not agree; a message that nobody sends or receives.
    """
    asked, groups = asked_of(trace, dtype), alike(trace)
    found = [*collectives(asked, groups), *messages(asked, groups)]
    return [met for met in found if len(met.ask)]


def requests_of(trace: Trace) -> list[Request]:
    """The different requests for collectives, but those of set-up.

    Raises:
        InputError: members of one that are missing or do not agree.
    """
    met = collectives(asked_of(trace, "float32"), alike(trace))
    of_group = {group: each for each in met for group in each.groups.tolist()}
    asks = (ask.request(trace.groups[group]) for group in sorted(of_group) for ask in of_group[group].asks)
    return list(dict.fromkeys(asks))
