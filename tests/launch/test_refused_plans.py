"""A plan or a file that cannot be, as a person meets it: one line with the nearest value that can, and exit code 2."""

import re
from pathlib import Path

import pytest

from emu.study.training import train
from tests.two_layers import TWO_LAYERS

BATCH = ("--global-batch",)
PLANS = [
    # A plan that does not divide the model.
    ("llama-tiny", "tp=3", (), "tp must be a divisor of the 8 heads of llama-tiny, got 3; take tp=2 or 4"),
    (
        "llama-tiny",
        "pp=3",
        (),
        "pp * vp must be a divisor of the 8 layers of llama-tiny, got 3; "
        "take pp=2 or 4, or say what each stage has: layers=3x2,2",
    ),
    (
        "llama-tiny",
        "pp=2,vp=3",
        (),
        "pp * vp must be a divisor of the 8 layers of llama-tiny, got 6; "
        "take pp * vp = 4 or 8, or say what each stage has: layers=1x2,2x2,1x2",
    ),
    ("llama-tiny", "pp=2,layers=4,5", (), "layers must be 8 in all, as llama-tiny has, got 9; take layers=4x2"),
    ("gpt-moe-tiny", "dp=8,ep=8", (), "ep must be a divisor of the 4 experts of gpt-moe-tiny, got 8; take ep=4"),
    # Nor the world.
    (
        "llama-tiny",
        "tp=4,dp=4",
        (),
        "tp * cp * dp * pp must be at most the 8 NPUs of ub-mesh:board, got 16; take dp=2, or a larger topology",
    ),
    (
        "gpt-moe-tiny",
        "tp=4,dp=2,ep=4",
        (),
        "etp * ep must be a divisor of the 8 ranks of a stage (tp * cp * dp), got 16; take ep=2, or another etp",
    ),
    # An axis that a model lacks.
    ("llama-tiny", "dp=2,ep=2", (), "ep must be left out, as llama-tiny has no experts, got 2; take ep=1"),
    ("llama-tiny", "dp=2,etp=2", (), "etp must be left out, as llama-tiny has no experts, got 2; take etp=0, which is tp"),
    ("llama-tiny", "capacity=1", (), "capacity must be left out, as llama-tiny has no experts, got 1.0; take capacity=0"),
    # What routers choose, and what no router can.
    (
        "gpt-moe-tiny",
        "dp=2,ep=2,imbalance=0.2",
        (),
        "imbalance must be 0 with software=pytorch, got 0.2; its routers choose the experts",
    ),
    ("gpt-moe-tiny", "dp=2,ep=2,imbalance=1", (), "imbalance must be 0 or more and below 1, got 1.0"),
    (
        "gpt-moe-tiny",
        "dp=2,ep=2,capacity=1,imbalance=0.2",
        (),
        "imbalance must be 0 with a capacity, which fills all experts up, got 0.2",
    ),
    # Fewer microbatches than an order needs.
    (
        "llama-tiny",
        "dp=2,pp=4",
        (*BATCH, "4"),
        "microbatches must be 4 or more in the order 1f1b of 4 stages, got 2; take a global batch of 8 or order=gpipe",
    ),
    (
        "llama-tiny",
        "pp=2,vp=2,order=dualpipev",
        (*BATCH, "2"),
        "microbatches must be 4 or more in the order dualpipev of 2 stages, got 2; "
        "take a global batch of 4 or order=interleaved or order=zero-bubble or order=zbv",
    ),
    (
        "llama-tiny",
        "pp=4,vp=2,dp=2",
        (*BATCH, "22"),
        "microbatches must be a multiple of the 4 stages in the order interleaved, got 11; take a global batch of 16 or 24",
    ),
    # An order that what it is combined with does not go with.
    (
        "llama-tiny",
        "pp=2,vp=2,order=zbv,dp=2,sharding=fsdp",
        (),
        "sharding must be ddp or zero1 in the order zbv, got 'fsdp'; "
        "PyTorch's hooks for fsdp do not see a split backward; or take order=interleaved or 1f1b",
    ),
    ("llama-tiny", "pp=2,order=zbv", (), "vp must be 2 in the order zbv, got 1; take order=gpipe or 1f1b"),
    # A batch, or a sequence, that does not divide.
    (
        "llama-tiny",
        "dp=4",
        (*BATCH, "6"),
        "dp must be a divisor of the global batch 6, got 4; take dp=3 or 6, or a global batch of 4 or 8",
    ),
    ("llama-tiny", "dp=4,microbatch=3", (), "microbatch must be a divisor of the 4 sequences of a rank, got 3; take 2 or 4"),
    (
        "llama-tiny",
        "cp=2",
        ("--seq", "31"),
        "seq must be a multiple of 4, for 2 chunks of a sequence on each of the 2 ranks of cp, got 31; take 28 or 32",
    ),
    (
        "llama-tiny",
        "tp=4,sp",
        ("--seq", "30"),
        "seq must be such that the 30 tokens of a rank divide by tp=4, as sp requires, got 30; take 28 or 32",
    ),
    (
        *("llama-tiny", "dp=2", ("--seq", "4096")),
        "seq must be at most the 1024 tokens of llama-tiny, got 4096; take 1024, or a model with a larger max_seq",
    ),
    (
        "gpt-moe-tiny",
        "tp=2,dp=2,ep=2",
        ("--seq", "7"),
        "seq must be such that the 7 tokens of a rank divide by tp=2, as its block of experts requires, got 7; take 6 or 8",
    ),
]


def refused(done):
    assert done.code == 2
    assert not done.out
    line = done.err.splitlines()[-1]  # before it stands, if that takes long, what is being loaded
    assert done.err.count("\n") == 1 + ("loading" in done.err)
    return line.removeprefix("emu: ")


@pytest.fixture
def trained(emu, monkeypatch: pytest.MonkeyPatch):
    """`emu train`, which must not get as far as to run anything."""

    def nothing_runs(*_: object) -> None:
        raise AssertionError("it was started")

    monkeypatch.setattr(train, "learn", nothing_runs)

    def run(model: str, plan: str, *more: str) -> str:
        return refused(emu("train", "--model", model, "--plan", plan, "--topology", "ub-mesh:board", *more))

    return run


@pytest.mark.parametrize(("model", "plan", "more", "message"), PLANS)
def test_a_plan_that_cannot_be_is_refused_with_the_nearest_that_can(trained, model, plan, more, message) -> None:
    assert trained(model, plan, *more) == f"plan: {message}"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("xp=2", "no axis or setting of a plan is called 'xp'; did you mean vp or tp or sp?"),
        ("pp=2,order=1fb1", "no order of a pipeline is called '1fb1'; did you mean 1f1b?"),
        ("dp=2,sharding=fsdb", "no sharding of a plan is called 'fsdb'; did you mean fsdp?"),
        ("dp=two", "plan: dp must be a whole number, got 'two'; e.g. dp=4"),
    ],
)
def test_a_word_that_is_no_setting_is_refused_with_those_it_is_like(trained, plan, message) -> None:
    assert trained("llama-tiny", plan) == message


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("ffn =", "fnn =", "unknown key 'fnn'; did you mean ffn?"),
        (
            "hidden = 64\n",
            "",
            "keys missing: hidden; the sizes of llama are layers, hidden, heads, kv_heads, ffn, vocab, max_seq, rope_theta, "
            "norm_eps, stretch, source",
        ),
        ('"llama"', '"lama"', "no architecture is called 'lama'; did you mean llama?"),
        ("hidden = 64", "hidden = 0", "hidden must be a whole number of 1 or more, got 0"),
        ("hidden = 64", 'hidden = "64"', "hidden must be a whole number of 1 or more, got '64'"),
        ("heads = 8\n", "heads = 7\n", "heads must be a divisor of hidden = 64, got 7; take 4 or 8"),
        ("kv_heads = 4", "kv_heads = 3", "kv_heads must be a divisor of the 8 heads, got 3; take 2 or 4"),
    ],
)
@pytest.mark.parametrize("command", ["train", "estimate"])
def test_a_file_of_sizes_that_cannot_be_is_refused(emu, command, was, now, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path(TWO_LAYERS).read_text()
    assert was in text
    Path("mine.toml").write_text(text.replace(was, now, 1))
    sizes = ("--global-batch", "8", "--seq", "64", "--topology", "ub-mesh:board")
    assert refused(emu(command, "--model", "mine.toml", "--plan", "dp=2", *sizes)) == f"mine.toml: {message}"


def test_a_model_that_does_not_fit_a_device_is_refused_with_how_much_is_missing_where_and_what_fits(emu) -> None:
    sizes = ("--global-batch", "64", "--seq", "8192", "--topology", "ub-mesh:rack")
    assert re.fullmatch(
        r"plan: llama3-8b by dp=64 takes \S+ GiB of a rank's memory, \S+ GiB more than the 74.51 GiB of the h100: "
        r"activations \S+ GiB, optimizer state \S+ GiB, weights \S+ GiB, gradients 0 B; "
        r"the nearest that fits is dp=64,sharding=fsdp, which takes \S+ GiB",
        refused(emu("estimate", "--model", "llama3-8b", "--plan", "dp=64", *sizes)),
    )
