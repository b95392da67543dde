"""The operators that a program runs."""

from emu.backend.rank.operator_counter import Operator, OperatorCounter


def counted(program):
    """Return the operators that `program` ran."""
    seen: list[Operator] = []
    with OperatorCounter(seen.append):
        program()
    return seen
