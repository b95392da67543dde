"""Which line of the user's program asked for each request of a trace: kept in its meta, as no time hangs on it."""

import json
from collections.abc import Mapping, Sequence

from emu.trace.trace import Trace

_KEY = "lines"
Lines = Mapping[int, str]  # by event of a role


def lines_entry(lines: Sequence[Lines]) -> tuple[tuple[str, str], ...]:
    """An entry of a trace's meta that holds the lines of each role [R]; nothing where there are none."""
    words = list(dict.fromkeys(line for of_role in lines for line in of_role.values()))
    number = {word: i for i, word in enumerate(words)}
    told = [[list(of_role), [number[line] for line in of_role.values()]] for of_role in lines]
    return ((_KEY, json.dumps([words, told])),) if words else ()


def lines_of(trace: Trace) -> list[Lines]:
    """[R] of each role of a trace, the line of each of its requests that one is known of."""
    words, told = json.loads(dict(trace.meta).get(_KEY, "[[], []]"))
    found: list[Lines] = [{event: words[i] for event, i in zip(*of_role, strict=True)} for of_role in told]
    return found or [{} for _ in trace.events]
