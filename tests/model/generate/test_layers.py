"""A generated step of every architecture does what real ranks do, whatever cuts a layer."""

from pathlib import Path

import pytest

from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from tests.model.generate.executed import compared
from tests.model.generate.megatron_steps import asked

SMALL = Path(__file__).parents[2] / "data" / "small"
DENSE = ("gpt", "nemotron")
EXPERTS = ("grok", "deepseek", "mixtral", "gpt-moe", "qwen3-moe")
ALL = (*DENSE, *EXPERTS)
EVEN = ("gpt", "gpt-moe", "nemotron", "deepseek")  # of two layers
SINGLE = [
    "tp=2",
    "tp=2,sp",
    "tp=2,sp,microbatch=1",
    "tp=2,sp,recompute=full",
    "tp=2,recompute=selective",
    "pp=2",
    "dp=2",
    "cp=2",
    "cp=2,cp_comm=all_gather",
]
OF_EXPERTS = [
    "ep=2,dp=2",
    "ep=2,dp=4,microbatch=1",
    "etp=2,dp=2",
    "tp=2,etp=1",
    "tp=2,ep=2,etp=1",
    "tp=2,sp,ep=2,etp=1,microbatch=2",
    "tp=2,ep=2,dp=2",
    "tp=2,sp,ep=2,dp=2",
    "ep=2,dp=2,recompute=full",
    "ep=2,dp=2,capacity=1.25",
    "capacity=1",
]
PRODUCTS = [
    ("gpt", "cp=2,tp=2,sp,dp=2"),
    ("nemotron", "cp=2,recompute=selective"),
    ("nemotron", "cp=4,microbatch=2"),
    ("mixtral", "cp=2,ep=2,recompute=full"),
    ("qwen3-moe", "cp=2,cp_comm=all_gather,recompute=full"),
    ("deepseek", "cp=2,tp=2,sp,ep=2,etp=1,clip=0"),
    ("gpt", "pp=2,tp=2,sp,dp=2"),
    ("gpt", "tp=2,dp=2,sharding=fsdp"),
    ("gpt", "pp=2,dp=2,sharding=zero1"),
    ("gpt-moe", "pp=2,tp=2,ep=2,dp=2"),
    ("gpt-moe", "pp=2,tp=2,sp,ep=2,etp=1,capacity=2"),
    ("gpt-moe", "tp=2,sp,ep=4,dp=4"),
    ("mixtral", "tp=2,sp,ep=2,etp=1,recompute=full,microbatch=2"),
    ("mixtral", "ep=4,dp=4,capacity=1.25,microbatch=1"),
    ("deepseek", "pp=2,tp=2,ep=2,etp=1,dp=2"),
    ("deepseek", "tp=2,sp,ep=2,etp=1,recompute=full"),
    ("qwen3-moe", "tp=2,sp,ep=4,etp=1,dp=2"),
    ("grok", "tp=2,sp,ep=2,dp=2,microbatch=2"),
    ("gpt", "cp=2,sharding=fsdp"),
    ("gpt", "pp=2,dp=2,sharding=fsdp"),
    ("gpt", "cp=2,sharding=zero1"),
    ("gpt", "cp=2,tp=2,sp,dp=2,sharding=zero1"),
    ("gpt", "pp=2,cp=2,dp=2,sharding=fsdp,cp_comm=all_gather,recompute=full"),
    ("nemotron", "cp=2,dp=2,recompute=selective,sharding=fsdp"),
    ("nemotron", "cp=2,dp=4,sharding=fsdp,shard=2,microbatch=1"),
    ("nemotron", "cp=2,dp=4,sharding=zero1,shard=2"),
    ("nemotron", "cp=2,tp=2,sp,dp=2,sharding=fsdp"),
    ("mixtral", "cp=2,ep=2,dp=2,sharding=zero1"),
    ("mixtral", "ep=2,dp=4,sharding=zero1,shard=2"),
    ("mixtral", "etp=2,dp=2,sharding=zero1"),
    ("grok", "tp=2,etp=1,sharding=zero1"),
    ("qwen3-moe", "cp=2,ep=2,cp_comm=all_gather,sharding=zero1"),
    ("gpt-moe", "pp=2,tp=2,ep=2,dp=2,sharding=zero1"),
    ("gpt-moe", "tp=2,sp,ep=2,etp=1,dp=2,sharding=zero1,microbatch=2"),
    ("mixtral", "ep=2,dp=2,sharding=fsdp"),
    ("mixtral", "ep=2,dp=4,sharding=fsdp,microbatch=1"),
    ("mixtral", "ep=2,dp=4,sharding=fsdp,shard=2"),
    ("mixtral", "ep=2,dp=4,capacity=1.25,sharding=fsdp"),
    ("mixtral", "etp=2,dp=2,sharding=fsdp"),
    ("mixtral", "tp=2,etp=1,sharding=fsdp"),
    ("mixtral", "tp=2,ep=2,dp=2,sharding=fsdp"),
    ("mixtral", "cp=2,ep=2,dp=2,sharding=fsdp,recompute=full"),
    ("qwen3-moe", "cp=2,ep=2,cp_comm=all_gather,sharding=fsdp"),
    ("deepseek", "ep=2,dp=4,sharding=fsdp,clip=0"),
    ("deepseek", "tp=2,sp,ep=2,etp=1,dp=2,sharding=fsdp,recompute=full"),
    ("grok", "tp=2,sp,ep=2,etp=1,dp=2,sharding=fsdp,recompute=full,microbatch=2"),
    ("gpt-moe", "pp=2,tp=2,ep=2,dp=2,sharding=fsdp"),
    ("gpt-moe", "pp=2,ep=2,dp=4,sharding=fsdp,recompute=full,order=gpipe"),
]
UNEVEN = [
    ("gpt", "dp=3,sharding=fsdp"),
    ("gpt", "pp=2,dp=3,sharding=fsdp"),
    ("gpt", "tp=2,dp=3,sharding=fsdp,microbatch=1"),
    ("nemotron", "tp=2,sp,dp=3,sharding=fsdp,recompute=full"),
    ("nemotron", "cp=2,dp=3,sharding=fsdp"),
    ("nemotron", "dp=6,sharding=fsdp,shard=3,clip=0"),
    ("mixtral", "ep=2,dp=6,sharding=fsdp"),
    ("mixtral", "tp=2,dp=3,sharding=fsdp"),
    ("mixtral", "tp=2,sp,ep=4,etp=1,dp=6,sharding=fsdp"),
    ("deepseek", "ep=2,dp=6,sharding=fsdp,shard=3,microbatch=1,recompute=full"),
]
QUICK = {
    ("nemotron", "cp=2,recompute=selective"),
    ("mixtral", "cp=2,cp_comm=all_gather"),
    ("gpt", "pp=2"),
    ("gpt", "tp=2,sp,microbatch=1"),
    ("deepseek", "tp=2"),
    ("gpt-moe", "tp=2,ep=2,dp=2"),
    ("mixtral", "ep=2,dp=2,recompute=full"),
    ("qwen3-moe", "tp=2,sp,ep=4,etp=1,dp=2"),
    ("mixtral", "cp=2,ep=2,dp=2,sharding=zero1"),
    ("grok", "tp=2,etp=1,sharding=zero1"),
    ("gpt", "cp=2,sharding=fsdp"),
    ("mixtral", "ep=2,dp=4,sharding=fsdp,shard=2"),
    ("mixtral", "ep=2,dp=6,sharding=fsdp"),
}
CASES = [
    *(
        (name, words)
        for name in ALL
        for words in SINGLE
        if words != "pp=2" or name in ("gpt", "gpt-moe", "nemotron", "deepseek")
    ),
    *((name, words) for name in EXPERTS for words in OF_EXPERTS),
    *PRODUCTS,
]


@pytest.mark.parametrize(("name", "words"), [c if c in QUICK else pytest.param(*c, marks=pytest.mark.slow) for c in CASES])
def test_a_step_of_an_architecture_is_what_runs(name, words):
    assert compared(words, str(SMALL / f"{name}.toml")).first is None


@pytest.mark.parametrize(("name", "words"), [c if c in QUICK else pytest.param(*c, marks=pytest.mark.slow) for c in UNEVEN])
def test_shards_of_which_some_ranks_have_more_are_as_they_run(name, words):
    """And some have none: two experts on three ranks."""
    assert compared(words, str(SMALL / f"{name}.toml"), global_batch=6).first is None


def test_a_latent_attention_whose_values_are_as_wide_as_its_keys_pads_nothing_and_keeps_the_joined_keys(tmp_path):
    """Published models have narrower values, which are padded for the kernel of the attention."""
    path = tmp_path / "wide.toml"
    wide = (SMALL / "deepseek.toml").read_text().replace("value = 8", "value = 64").replace("plain = 8", "plain = 60")
    path.write_text(wide.replace("ffn = 64", "ffn = 32"))  # so that keys are much of what a layer keeps
    assert compared("dp=1", str(path), global_batch=16, seq=64).first is None  # so that activations are most of the peak


@pytest.mark.parametrize(
    ("words", "reduces", "gathers", "scatters"),
    [
        ("tp=2", 0, 0, 0),  # the blocks' outputs, and the gradients of their inputs, are added up together, as a dense block's
        ("tp=2,etp=1", -2, 4, 2),  # without sp also what each rank routes itself is gathered, in both directions
        ("tp=2,sp,etp=1", 0, 0, 0),
    ],
)
def test_a_shared_block_beside_experts_asks_of_tp_what_a_dense_block_does(words, reduces, gathers, scatters, tmp_path):
    """Tokens are gathered and sums are scattered, and of gradients the reverse, each of n h elements."""
    text = (SMALL / "deepseek.toml").read_text()
    (tmp_path / "dense.toml").write_text(text.replace("dense_layers = 1", "dense_layers = 2"))
    plan = parse_plan(words, global_batch=2, seq=16, microbatch=1)
    sparse, dense = (
        asked(generate(find_model(str(f)), plan, Stack())) for f in (SMALL / "deepseek.toml", tmp_path / "dense.toml")
    )
    more = {"all_reduce": reduces, "all_gather": gathers, "reduce_scatter": scatters}
    for operation, each in more.items():
        of = "tp", operation, plan.seq * 32, "bfloat16"
        assert sparse[of] - dense[of] == each * plan.passes, operation


@pytest.mark.parametrize(("ep", "experts_here"), [(2, 4), (4, 2)])
def test_where_the_rows_of_each_expert_end_is_three_counts_and_an_index_an_expert_of_the_rank(ep, experts_here):
    """A cumulative sum reads and writes a count of 8 bytes, and what follows reads it and writes 4 bytes; once a layer."""
    model = find_model("qwen3-moe-tiny")
    events = generate(model, parse_plan(f"ep={ep},dp=4", global_batch=4, seq=16), Stack()).events[0]
    sizes = [size for name, size in zip(events.name, events.bytes.tolist(), strict=True) if name.endswith("routed rows")]
    assert sizes.count((3 * 8 + 4) * experts_here) == model.layers
