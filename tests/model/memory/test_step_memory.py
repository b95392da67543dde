"""The bytes that live during a whole step against closed forms: n tokens of a microbatch, h hidden."""

import pytest

from emu.model.generate.rank_parts import RankParts
from emu.model.memory.step_memory import owned_by
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack

H, S, B = 64, 32, 8
LLAMA = MODELS.find("llama-tiny")


def always(words, place=0, stack="software=pytorch", model=LLAMA):
    """The bytes that live as a step begins: weights, gradients, and buffers."""
    plan = parse_plan(words, global_batch=B, seq=S)
    return RankParts(model, plan, parse_stack(stack), lambda *_: None, place).memory.opened().now


@pytest.mark.parametrize(("pp", "vp"), [(2, 1), (4, 1), (2, 2)])
def test_a_stage_has_a_buffer_for_each_message_that_it_will_receive(pp, vp):
    """torch/distributed/pipelining/stage.py: of each microbatch, of n h elements; and tokens and targets of 8 bytes each."""
    words = f"pp={pp},vp={vp}" if vp > 1 else f"pp={pp}"
    plan = parse_plan(words, global_batch=B, seq=S)
    message, tokens = 2 * plan.pass_batch * S * H, 2 * 8 * B * S
    for place in range(pp):
        stages = [place + pp * chunk for chunk in range(vp)]
        sides = sum((stage > 0) + (stage < pp * vp - 1) for stage in stages)
        assert always(words, place).activations == tokens + sides * plan.passes * message
        assert always(words, place, "software=megatron").activations == tokens


@pytest.mark.parametrize(
    ("words", "buckets"), [("dp=1", 0), ("dp=2", 1), ("dp=2,sharding=zero1", 1), ("dp=2,sharding=fsdp", 0), ("cp=2", 1)]
)
def test_buckets_of_gradients_live_always_where_data_parallelism_averages_whole_gradients(words, buckets):
    """torch.nn.parallel.DistributedDataParallel; fully_shard has none of them, and a single copy has nothing to average."""
    plan = parse_plan(words, global_batch=B, seq=S)
    of_gradients = 4 * LLAMA.parameters()  # in float32
    assert always(words).activations == 2 * 8 * plan.rank_batch * plan.rank_seq + buckets * of_gradients
    assert always(words).gradients == 0


@pytest.mark.parametrize(("words", "stages"), [("dp=1", 0), ("cp=2", 1), ("cp=4", 1), ("cp=2,pp=2", 1), ("cp=2,pp=2,vp=2", 2)])
def test_a_rank_that_gathers_all_keys_has_a_mask_of_each_query_and_key_for_each_stage(words, stages):
    """A float32 of each of its own queries and each key of the sequence; a ring, and Megatron-LM's kernels, need none."""
    plan = parse_plan(words, global_batch=B, seq=S)
    ring, gathered = (always(f"{words}{how}").weights for how in ("", ",cp_comm=all_gather"))
    assert gathered - ring == 4 * S // plan.cp * S * stages
    ring, gathered = (always(f"{words}{how}", stack="software=megatron").weights for how in ("", ",cp_comm=all_gather"))
    assert gathered == ring


def test_parameters_are_dealt_out_from_the_largest_on_to_the_rank_that_has_least():
    """zero_redundancy_optimizer.py, `_partition_parameters`; of ranks that have as much the first gets the next one."""
    assert owned_by([3, 5, 3, 4, 3], 2) == [[5, 3], [4, 3, 3]]
    assert owned_by([1, 1, 2], 4) == [[2], [1], [1], []]
    sizes = [7, 1, 9, 4, 4, 4, 2, 8]
    owned = owned_by(sizes, 3)
    assert sorted(size for of_rank in owned for size in of_rank) == sorted(sizes)
    assert max(map(sum, owned)) - min(map(sum, owned)) <= min(sizes)
