"""Parts that are kept of one plan serve another only where they are equal: bounds of many plans beside those of each alone."""

from dataclasses import replace
from random import Random

import pytest

from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON, OVERLAPPED, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.plan_request import Candidate
from emu.study.planning.space import placements
from tests.study.planning.spaces import asked, of

LINE = "switch:n=16,bandwidth=1GB/s,latency=2us"
LATER = Stack(MEGATRON, dp=OVERLAPPED)
WORDS = (
    *("tp=2,dp=2", "tp=4,dp=2", "tp=4,sp,dp=2", "tp=2,cp=2,dp=2", "tp=2,cp=2,dp=2,cp_comm=all_gather"),
    *("tp=2,dp=2,sharding=zero1", "tp=2,dp=4,sharding=zero1", "tp=2,dp=4", "tp=2,dp=4,microbatch=1", "tp=2,dp=4,clip=0"),
    *(
        "tp=2,dp=2,pp=2",
        "tp=2,dp=2,pp=2,sharding=zero1",
        "tp=2,dp=2,pp=2,vp=2",
        "tp=2,dp=2,pp=4",
        "tp=2,dp=2,pp=2,recompute=full",
    ),
    *("tp=2,dp=2,recompute=selective", "tp=2,dp=2,pp=2,layers=3,5", "tp=2,dp=2,pp=2,layers=5,3", "dp=4,pp=2,microbatch=1"),
)
OWN = {
    PYTORCH: (
        *(
            "dp=4,sharding=fsdp",
            "dp=4,sharding=zero1",
            "dp=8,sharding=fsdp",
            "dp=8,sharding=fsdp,shard=4",
            "dp=8,sharding=fsdp,shard=2",
            "dp=4,pp=2,vp=2",
        ),
        *("tp=2,dp=2,pp=2,vp=2,order=zero-bubble", "tp=2,dp=2,pp=2,order=gpipe", "tp=2,dp=2,pp=2,vp=2,order=zbv,microbatch=2"),
        *("dp=4,sharding=fsdp,microbatch=1", "dp=4,pp=2,sharding=fsdp,microbatch=1", "cp=2,dp=4,sharding=fsdp,shard=4"),
    ),
    MEGATRON: ("tp=4,sp,dp=2,sharding=zero1", "tp=4,sp,dp=2,recompute=selective", "tp=2,dp=2,pp=2,vp=4"),
}
SPARSE = (
    "tp=2,ep=2,dp=4",
    "tp=2,ep=4,dp=4",
    "tp=2,ep=2,etp=1,dp=4",
    "tp=2,ep=2,dp=4,sharding=zero1",
    "ep=2,dp=4,pp=2,microbatch=1",
)


def bounds_of(own: CandidateBounds, floors: MemoryFloors, words: str) -> list[object]:
    """Return all that bounds a plan: anywhere, and in the first of its placements; or why it cannot be generated."""
    plan = parse_plan(words, global_batch=16, seq=64)
    first = Candidate(0, plan, placements(plan)[0])
    try:
        quick = own.quick.by_sequence_s(plan), own.quick.by_own_passes_s(plan)
        return [words, quick, own.anywhere_s(plan), own.reduced_s(plan), own.by_ports_s(first), floors.bytes(plan)]
    except InputError as error:
        return [words, str(error)]


@pytest.mark.parametrize("stack", [Stack(PYTORCH), Stack(MEGATRON), LATER], ids=["pytorch", "megatron", "overlapped"])
@pytest.mark.parametrize("model", ["llama-tiny", "gpt-moe-tiny"])
def test_bounds_of_plans_do_not_depend_on_the_plans_that_were_bounded_before(model: str, stack: Stack) -> None:
    """Each pair of plans differs in little, so that a key without it would take the one for the other."""
    request = replace(asked(model, 16, 16, 64), stack=stack)
    words = [*SPARSE, *WORDS[:4]] if "moe" in model else [*WORDS, *OWN[stack.software]]
    Random(5).shuffle(words)
    together = of(request, LINE)
    model_of = together.paths.model
    floors = MemoryFloors(model_of, stack)
    kept = [bounds_of(together, floors, each) for each in words]
    assert sum(len(each) > 2 for each in kept) > 6
    assert kept == [bounds_of(of(request, LINE), MemoryFloors(model_of, stack), each) for each in words]
