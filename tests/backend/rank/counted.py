"""The operators that a program runs."""

from emu.backend.rank.count import Count, Operator


def counted(program):
    """Return the operators that `program` ran."""
    seen: list[Operator] = []
    with Count(seen.append):
        program()
    return seen
