"""The lines of the user's program that made the requests of a trace, stored in the trace's meta.

No time depends on these lines, so they are no part of the events. R roles.
"""

import json
from collections.abc import Mapping, Sequence

from emu.trace.trace import Trace

_KEY = "lines"
Lines = Mapping[int, str]  # the line of the user's program, by the number of a role's event


def lines_entry(lines: Sequence[Lines]) -> tuple[tuple[str, str], ...]:
    """Return an entry for a trace's meta with the lines of each role [R]; empty if no line is known."""
    words = list(dict.fromkeys(line for of_role in lines for line in of_role.values()))
    number = {word: i for i, word in enumerate(words)}
    packed = [[list(of_role), [number[line] for line in of_role.values()]] for of_role in lines]
    return ((_KEY, json.dumps([words, packed])),) if words else ()


def lines_of(trace: Trace) -> list[Lines]:
    """Return [R] for each role of a trace, the line of each of its requests whose line is known, by the event's number."""
    words, packed = json.loads(dict(trace.meta).get(_KEY, "[[], []]"))
    found: list[Lines] = [{event: words[i] for event, i in zip(*of_role, strict=True)} for of_role in packed]
    return found or [{} for _ in trace.events]
