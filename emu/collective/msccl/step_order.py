"""An order in which the steps of an MSCCL program may run, and the check that no other order gives another result."""

from collections import defaultdict

from emu.collective.msccl.parse import RECEIVES, SENDS, ProgramStep, Spot
from emu.errors import InputError, must_be

Lane = tuple[int, int, int]  # src, dst, channel


def order_steps(steps: list[ProgramStep]) -> list[ProgramStep]:
    """Return the steps so that each follows those before it in its threadblock, the step it awaits and the send it receives.

    Raises:
        InputError: Sends and receives do not match, a step waits for one that is not there or for itself through others, or two
            steps race for a chunk.
    """
    before = _before(steps)
    after: dict[int, list[int]] = defaultdict(list)
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    missing = [len(earlier) for earlier in before]
    order = [i for i, count in enumerate(missing) if not count]
    for i in order:  # grows as steps become free
        for j in after[i]:
            missing[j] -= 1
            if not missing[j]:
                order.append(j)
    stuck = next((steps[i] for i, count in enumerate(missing) if count), None)
    if stuck is not None:
        raise InputError(f"{stuck.place}: it can never start, since it waits for itself through others; mend depid and deps")
    _refuse_races(steps, before, order)
    return [steps[i] for i in order]


def _before(steps: list[ProgramStep]) -> list[list[int]]:
    """Return, for each step, the indices of the steps that it must follow."""
    number = {(s.gpu, s.block, s.index): i for i, s in enumerate(steps)}
    sent: dict[Lane, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if step.kind in SENDS:
            sent[step.gpu, step.sends_to, step.channel].append(i)
    taken: dict[Lane, int] = defaultdict(int)
    before: list[list[int]] = []
    for step in steps:
        before.append([number[step.gpu, step.block, step.index - 1]] if step.index else [])
        if step.awaits is not None:
            if (step.gpu, *step.awaits) not in number:
                raise must_be(step.place, "depid and deps", "a threadblock of its GPU and one of its steps", step.awaits)
            before[-1].append(number[(step.gpu, *step.awaits)])
        if step.kind in RECEIVES:
            lane = step.receives_from, step.gpu, step.channel
            before[-1].append(_match(steps, step, sent[lane], taken[lane]))
            taken[lane] += 1
    for lane, sends in sent.items():
        if len(sends) > taken[lane]:
            raise InputError(f"{steps[sends[taken[lane]]].place}: what it sends to gpu {lane[1]} is never received")
    return before


def _match(steps: list[ProgramStep], step: ProgramStep, sends: list[int], taken: int) -> int:
    """Return the number of the send that a receiving step of a lane takes.

    The lane's first `taken` sends have receivers already.
    """
    if taken >= len(sends):
        raise InputError(f"{step.place}: gpu {step.receives_from} sends nothing for it on channel {step.channel}")
    sender = steps[sends[taken]]
    if sender.count != step.count:
        raise must_be(step.place, "cnt", f"the {sender.count} of {sender.place.removeprefix('msccl: ')}", step.count)
    return sends[taken]


def _refuse_races(steps: list[ProgramStep], before: list[list[int]], order: list[int]) -> None:
    """Check that every two steps that touch a chunk are ordered where one of them writes it.

    The steps that precede a step are a set of bits in one integer.
    """
    past = [0] * len(steps)
    writer: dict[tuple[int, Spot], int] = {}
    readers: dict[tuple[int, Spot], list[int]] = defaultdict(list)
    for i in order:
        step = steps[i]
        for j in before[i]:
            past[i] |= past[j] | 1 << j
        for spots, writes in ((step.reads, False), (step.writes, True)):
            for spot in spots:
                chunk = step.gpu, spot
                others = [writer[chunk]] if chunk in writer else []
                others += readers[chunk] if writes else []
                for j in others:
                    if j != i and not past[i] >> j & 1:
                        raise _race(step, steps[j], spot)
                if writes:
                    writer[chunk], readers[chunk] = i, []
                else:
                    readers[chunk].append(i)


def _race(step: ProgramStep, other: ProgramStep, spot: Spot) -> InputError:
    """Return the error for two steps that use a chunk without a fixed order."""
    return InputError(
        f"{step.place}: {spot[0]}[{spot[1]}] is also used by {other.place.removeprefix('msccl: ')}, before or after; one must "
        "await the other with depid and deps"
    )
