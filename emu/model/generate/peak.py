"""The memory of a plan at its peak: the passes of a rank run on a silent tape, which records what lives and writes no event."""

from collections.abc import Iterable, Iterator
from functools import partial

from emu.model.generate.megatron import megatron_step
from emu.model.generate.rank_step import RankParts, walk
from emu.model.generate.stage_passes import ModelParts
from emu.model.generate.tape import KnownStretches, SilentTape
from emu.model.memory.step_memory import PeakBytes
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.routed_rows import about_even
from emu.model.stack.stack import Stack


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Return the bytes of the rank that holds most, by part, at its peak."""
    return max(_peaks(model, plan, stack, range(plan.pp)), key=sum)._asdict()


def holds(model: Model, plan: Plan, stack: Stack, memory: int, places: Iterable[int]) -> bool:
    """Return whether a number of bytes is enough for a rank at each of these places of a pipeline."""
    return all(sum(peak) <= memory for peak in _peaks(model, plan, stack, places))


def reserved_bytes(model: Model, plan: Plan, stack: Stack) -> int:
    """Return the bytes that PyTorch's allocator asks the device for, on a rank at the first place of its pipeline."""
    rank = RankParts.at(_parts(model, plan, stack), 0)
    return rank.memory.reserved(walk(rank, SilentTape).tape.memory)


def _peaks(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[PeakBytes]:
    """Yield the peak of a rank at each place; rows of tokens are spread about evenly over experts."""
    known: KnownStretches = {}
    if stack.software == "megatron":
        yield from (megatron_step.peak_of(model, plan, stack, place, known) for place in places)
        return
    for rank in map(partial(RankParts.at, _parts(model, plan, stack)), places):
        yield rank.memory.peak(walk(rank, SilentTape, known).tape.memory)


def _parts(model: Model, plan: Plan, stack: Stack) -> ModelParts:
    """Return the parts of a model with token rows spread about evenly over experts."""
    by_kind = {kind: about_even(plan, model, kind) for kind in set(model.kinds)}
    return ModelParts(model, plan, stack, lambda layer, _: by_kind[model.kinds[layer]])
