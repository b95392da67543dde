"""The memory of a plan at its peak: the passes of a rank go by on a silent tape, which tells what lives and writes no event."""

from collections.abc import Iterable, Iterator
from functools import partial

from emu.model.generate.megatron import rank as megatron
from emu.model.generate.passes import Parts
from emu.model.generate.rank import RankParts, walk
from emu.model.generate.tape import Known, SilentTape
from emu.model.memory.rank import PeakBytes
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.routed import about_even
from emu.model.stack.stack import Stack


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Return the bytes of the rank that holds most, by part, at its peak."""
    return max(_peaks(model, plan, stack, range(plan.pp)), key=sum)._asdict()


def holds(model: Model, plan: Plan, stack: Stack, memory: int, places: Iterable[int]) -> bool:
    """Return whether so many bytes hold a rank at each of these places of a pipeline."""
    return all(sum(peak) <= memory for peak in _peaks(model, plan, stack, places))


def reserved_bytes(model: Model, plan: Plan, stack: Stack) -> int:
    """Return the bytes that PyTorch's allocator asks the device for, on a rank at the first place of its pipeline."""
    rank = RankParts.at(_parts(model, plan, stack), 0)
    return rank.memory.reserved(walk(rank, SilentTape).tape.memory)


def _peaks(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[PeakBytes]:
    """Yield the peak of a rank at each place; rows of tokens are spread about evenly over experts."""
    known: Known = {}
    if stack.software == "megatron":
        yield from (megatron.peak_of(model, plan, stack, place, known) for place in places)
        return
    for rank in map(partial(RankParts.at, _parts(model, plan, stack)), places):
        yield rank.memory.peak(walk(rank, SilentTape, known).tape.memory)


def _parts(model: Model, plan: Plan, stack: Stack) -> Parts:
    by_kind = {kind: about_even(plan, model, kind) for kind in set(model.kinds)}
    return Parts(model, plan, stack, lambda layer, _: by_kind[model.kinds[layer]])
