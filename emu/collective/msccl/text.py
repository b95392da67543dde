"""Schedules out to MSCCL XML and in again, so that what is proved here runs on GPUs and what was written there is proved here.

Format: that of msccl-tools (`nchunksperloop`, `step`); meaning of a step: as RCCL's MSCCL kernel executes it. The attribute
`emu_round`, which other readers skip, brings the rounds back. Lost: protocol and sizes; out, that a rank's own value is added
at its own rank's place; in, the order of unrelated steps of a threadblock. Memory of a GPU begins with whatever was there: what
adds (`rrc`) to a chunk that nothing was written to is refused, out and in.
"""

from emu.collective.msccl.layout import COLLS
from emu.collective.msccl.order import in_order
from emu.collective.msccl.parse import parse
from emu.collective.msccl.rows import schedule_of
from emu.collective.msccl.write import write
from emu.collective.operation import Operation, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.errors import InputError, must_be


def to_xml(schedule: Schedule, wanted: Operation, name: str) -> str:
    """Write a schedule of `wanted` as an MSCCL program called `name`: in place, but for an all_to_all.

    Raises:
        InputError: what MSCCL cannot say: a rooted or unknown operation, helpers (which begin at zero), unequal shares, renamed
            or spare slots.
        ProofError: it does not do the operation; in which order values are summed is left open, as MSCCL leaves it.
    """
    if wanted.name not in COLLS:
        raise must_be("msccl", "operation", f"one of {', '.join(COLLS)}", wanted.name, "MSCCL XML has no root and no others")
    _refuse_unsayable(schedule)
    prove(schedule, wanted, same_bits=False)
    return write(schedule.expand(), wanted, name)


def from_xml(text: str) -> tuple[Schedule, Operation]:
    """Read an MSCCL program as a schedule, with the operation that it says it does (whether it does is for the proof).

    Rounds are those of `emu_round`, else as early as the data allows.

    Raises:
        InputError: text that is no such program, a rooted collective, steps that match no others, wait for one another or
            race for a chunk; the message names GPU, threadblock and step.
    """
    program = parse(text)
    return schedule_of(program.layout, in_order(program)), operation(program.layout.operation, program.layout.n)


def _refuse_unsayable(schedule: Schedule) -> None:
    said = {
        "helpers that begin at zero and add": schedule.helpers > 0,
        "unequal shares": len(set(schedule.shares)) > 1,
        "renamed slots": schedule.dst_slot is not None,
        "spare slots": bool(schedule.temps),
    }
    for what, there in said.items():
        if there:
            raise InputError(f"msccl: the schedule has {what}, which MSCCL XML cannot say; export one without")
