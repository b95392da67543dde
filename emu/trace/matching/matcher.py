"""The matcher of a trace's requests: it finds which requests make one collective call, and which two make one message."""

from emu.collective.algorithm import Request
from emu.trace.matching.matched_collectives import matched_collectives
from emu.trace.matching.matched_messages import matched_messages
from emu.trace.matching.role_requests import MatchedCalls, equivalent_groups, role_requests
from emu.trace.trace import Trace


def matched_calls(trace: Trace, dtype: str) -> list[MatchedCalls]:
    """Return every collective call and every message of a trace, without those of set-up.

    Args:
        trace: A trace of all ranks.
        dtype: The dtype as which float32 is timed.

    Raises:
        InputError: an unknown dtype; members are missing or do not agree; a message that nobody sends or receives.
    """
    asked, groups = role_requests(trace, dtype), equivalent_groups(trace)
    found = [*matched_collectives(asked, groups), *matched_messages(asked, groups)]
    return [met for met in found if len(met.ask)]


def collective_requests(trace: Trace) -> list[Request]:
    """Return the different requests for collectives of a trace, without those of set-up.

    Raises:
        InputError: members of a collective are missing or do not agree.
    """
    met = matched_collectives(role_requests(trace, "float32"), equivalent_groups(trace))
    of_group = {group: each for each in met for group in each.groups.tolist()}
    asks = (ask.request(trace.groups[group]) for group in sorted(of_group) for ask in of_group[group].asks)
    return list(dict.fromkeys(asks))
