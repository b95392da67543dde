"""MSCCL XML, written and read: a proved schedule can run on GPUs, and a program from elsewhere can be proved and timed.

The format is that of msccl-tools (`nchunksperloop`, `step`). The meaning of a step is that of RCCL's MSCCL kernel. The
attribute `emu_round`, which other readers skip, carries the rounds. Writing loses protocol, sizes, and the rule that a rank's
own value is added at its own rank's place. Reading loses the order of unrelated steps of a threadblock. The memory of a GPU
begins with noise: an add (`rrc`) to a chunk that nothing was written to is refused in both directions.
"""

from emu.collective.msccl.gpu_buffers import COLLS
from emu.collective.msccl.parse import parse
from emu.collective.msccl.rows import schedule_of
from emu.collective.msccl.step_order import order_steps
from emu.collective.msccl.write import write
from emu.collective.operation import Operation, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.errors import InputError, must_be


def to_xml(schedule: Schedule, wanted: Operation, name: str) -> str:
    """Return a schedule of operation `wanted` as an MSCCL program called `name`. It is in place, but for an all_to_all.

    Raises:
        InputError: MSCCL cannot express it: a rooted or unknown operation, helpers (which begin at zero), unequal shares,
            renamed or spare slots.
        ProofError: It does not do the operation. The order of sums is not checked, because MSCCL leaves it open.
    """
    if wanted.name not in COLLS:
        raise must_be("msccl", "operation", f"one of {', '.join(COLLS)}", wanted.name, "MSCCL XML has no root and no others")
    _refuse_unsayable(schedule)
    prove(schedule, wanted, same_bits=False)
    return write(schedule.expand(), wanted, name)


def from_xml(text: str) -> tuple[Schedule, Operation]:
    """Return the schedule of an MSCCL program, and the operation that the program claims to do (a proof checks it).

    Rounds are those of `emu_round`, else as early as the data allows.

    Raises:
        InputError: The text is no such program, the collective is rooted, or steps match no others, wait for one another or
            race for a chunk. The message names GPU, threadblock and step.
    """
    program = parse(text)
    return schedule_of(program.layout, order_steps(program)), operation(program.layout.operation, program.layout.n)


def _refuse_unsayable(schedule: Schedule) -> None:
    """Check that MSCCL XML can express a schedule."""
    said = {
        "helpers that begin at zero and add": schedule.helpers > 0,
        "unequal shares": len(set(schedule.shares)) > 1,
        "renamed slots": schedule.dst_slot is not None,
        "spare slots": bool(schedule.temps),
    }
    for what, there in said.items():
        if there:
            raise InputError(f"msccl: the schedule has {what}, which MSCCL XML cannot say; export one without")
