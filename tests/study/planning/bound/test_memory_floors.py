"""The floor of the memory of a plan, worked out by hand: parameters, states, and what forwards keep at three moments."""

import pytest

from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import EMBEDDING, HEAD, find_model
from emu.model.pipeline_order import turns
from emu.model.plan.plan_text import parse_plan
from emu.model.routed_rows import about_even
from emu.model.stack.software import MEGATRON, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.bound import memory_floors
from emu.study.planning.bound.memory_floors import MemoryFloors

WEIGHT, GRADIENT, STATES = 2, 4, 12  # bytes of a parameter: bfloat16, float32, and float32 three times


def floor(stack, words, batch, seq=64, model="llama-tiny"):
    """The floor of a plan, and the parameters, the kept bytes and the made bytes of its embedding, a layer, and its head."""
    found, plan = find_model(model), parse_plan(words, global_batch=batch, seq=seq)
    parts = [LayerMemory(found, plan, stack, name) for name in (EMBEDDING, "dense", HEAD)]
    made = [sum(map(part.made_bytes, part.operators)) for part in parts]
    floors = MemoryFloors(found, stack).bytes(plan)
    return floors, [(part.parameters, part.kept, size) for part, size in zip(parts, made, strict=True)]


@pytest.mark.parametrize(
    ("words", "passes", "layers", "forwards"),
    [
        ("pp=2,layers=3,5,microbatch=1", 6, 3, 3 * 2),  # 1F1B: one forward ahead of each place after it, and its own
        ("pp=4,layers=1,3,3,1,microbatch=1", 9, 1, 1 * 4),
        ("pp=4,layers=1,3,3,1,microbatch=1", 3, 1, 1 * 3),  # there are no more
        # Of two stages of 1 and 3 layers: all of one round of each, and 2 forwards of the first for the way to the other place.
        ("pp=2,vp=2,layers=1,2,3,2,microbatch=1", 6, 4, 1 * (2 + 1) + 3 * 2),
    ],
)
def test_megatron_keeps_what_the_forwards_before_the_first_backward_keep_and_all_gradients(words, passes, layers, forwards):
    found, ((table, _, _), (layer, kept, _), _) = floor(Stack(MEGATRON), words, passes)
    assert found == (WEIGHT + GRADIENT + STATES) * (table + layers * layer) + forwards * kept


@pytest.mark.parametrize("passes", [64, 512])
def test_a_floor_looks_no_further_for_more_microbatches(passes, monkeypatch):
    """Else a floor of a plan with thousands of microbatches would take as long as its step is long."""
    taken = []
    monkeypatch.setattr(memory_floors, "turns", lambda *args: ((taken.append(turn), turn)[1] for turn in turns(*args)))
    floor(Stack(MEGATRON), "pp=4,vp=2,microbatch=1", passes)
    first = 2 * (4 - 1) + 4 * (2 - 1) + 1  # forwards before the first backward of place 0 (Megatron's interleaved schedule)
    assert len(taken) == (first + 1) + first + 8 * 4 * 2  # for the first moment until a backward comes; for the second a window


def test_zero1_divides_the_states_alone_and_the_ranks_of_a_part_of_dp_have_shares_of_it():
    found, ((table, _, _), (layer, kept, _), (head, logits, _)) = floor(Stack(MEGATRON), "dp=6,sharding=zero1", 6)
    whole = table + 8 * layer + head
    assert found == (WEIGHT + GRADIENT) * whole + STATES * (whole // 6) + 8 * kept + logits
    found, _ = floor(Stack(MEGATRON), "dp=3,tp=2,sharding=zero1", 6)
    one, _ = floor(Stack(MEGATRON), "dp=3,tp=2", 6)
    cut = (one - found) * 3 / 2 / STATES  # two thirds of the states of a rank's half of the model
    assert cut == pytest.approx(find_model("llama-tiny").parameters(2), abs=2)


def test_fsdp_divides_weights_gradients_and_states_over_its_shards():
    for words, ranks in (("dp=6,sharding=fsdp", 6), ("dp=6,sharding=fsdp,shard=3", 3), ("dp=2,cp=3,sharding=fsdp", 6)):
        found, ((table, _, _), (layer, kept, made), (head, logits, last)) = floor(Stack(PYTORCH), words, 6, 12)
        share = (table + 8 * layer + head) // ranks
        assert found == WEIGHT * share + STATES * share + max(8 * kept + logits, GRADIENT * share)
        assert 8 * made + last > 8 * kept + logits  # of one microbatch no gradient lives beside another forward


def test_eager_pytorch_has_most_at_its_first_backward_at_the_optimizer_or_in_between():
    """GPipe on 2 places has 3 forwards before any backward; then 2 beside the gradients that the first has made."""
    words = "pp=2,layers=3,5,microbatch=1,order=gpipe"
    tops = set()
    for seq in (8, 64, 512):
        found, ((table, _, of_table), (layer, kept, made), _) = floor(Stack(PYTORCH), words, 3, seq)
        moments = 3 * 3 * kept, GRADIENT * (table + 3 * layer), 2 * 3 * kept + of_table + 3 * made
        assert found == (WEIGHT + STATES) * (table + 3 * layer) + max(moments)
        tops.add(moments.index(max(moments)))
    assert tops == {0, 2}


def test_pytorch_s_zero1_gives_each_rank_whole_tensors_of_which_it_has_the_largest_at_least():
    found, ((table, _, _), (layer, kept, made), (head, logits, last)) = floor(Stack(PYTORCH), "dp=4,sharding=zero1", 4, 256)
    assert layer / 4 < table == head - 64  # the head's product beside its norm; no product of a layer is larger
    assert found == WEIGHT * (table + 8 * layer + head) + STATES * table + 8 * kept + logits
    assert min(made, last) > 0


def test_of_two_tables_the_larger_is_the_least_that_a_rank_updates():
    found, ((tables, _, _), (layer, kept, _), (head, logits, _)) = floor(
        Stack(PYTORCH), "dp=4,sharding=zero1", 4, 256, "gpt-tiny"
    )
    of_words, of_positions = 1024 * 64, 256 * 64
    assert tables == of_words + of_positions
    assert found == WEIGHT * (tables + 8 * layer + head) + STATES * of_words + 8 * kept + logits


@pytest.mark.parametrize("stack", [Stack(MEGATRON), Stack(PYTORCH)])
def test_states_of_experts_are_shared_over_a_stage_and_rows_that_travel_are_kept_where_they_arrive(stack):
    """Four of eight layers are sparse; PyTorch's optimizer takes whole tensors."""
    model = find_model("gpt-moe-tiny")
    plan = parse_plan("tp=2,ep=2,etp=1,dp=6,sharding=zero1", global_batch=6, seq=256)
    names, pytorch = ("embedding", "dense", "sparse", "head"), stack.software is PYTORCH
    routed = {"sparse": about_even(plan, model, "sparse")} if pytorch else {}
    parts = [LayerMemory(model, plan, stack, name, routed.get(name)) for name in names]
    whole = sum(times * part.parameters for times, part in zip((1, 4, 4, 1), parts, strict=True))
    states = max(size for part in parts for operator in part.operators for size in operator.sizes) if pytorch else whole // 12
    kept = sum(times * part.kept for times, part in zip((1, 4, 4, 1), parts, strict=True))
    floors = MemoryFloors(model, stack).bytes(plan)
    assert floors == WEIGHT * whole + STATES * states + (max(kept, GRADIENT * whole) if pytorch else kept + GRADIENT * whole)
    plain = LayerMemory(model, plan, stack, "sparse").kept
    assert not pytorch or plain != parts[2].kept


def test_a_tied_head_makes_no_gradient_beside_that_of_the_table():
    found, ((table, _, _), (layer, kept, made), (head, logits, _)) = floor(
        Stack(PYTORCH), "dp=2,microbatch=1", 4, 512, "gpt-tiny"
    )
    beside = 8 * kept + logits + 8 * made
    assert found == (WEIGHT + STATES) * (table + 8 * layer + head) + max(beside, GRADIENT * (table + 8 * layer + head))
    assert beside > GRADIENT * (table + 8 * layer + head)
