"""Every architecture learns the same on ranks that share its tensors or its sequences as on one."""

import tomllib
from pathlib import Path

import pytest

from emu.collective.choice import Choice
from emu.model.model import ARCHITECTURES, MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.study.training.learn.learn import learn
from emu.study.training.learn.program import Program, read_text
from tests.two_layers import TWO_LAYERS

TINY = [name for name, _ in MODELS if name.endswith("-tiny")]
SMALLEST = [TWO_LAYERS, *map(str, sorted((Path(__file__).parents[1] / "data" / "small").glob("*.toml")))]


def test_the_smallest_are_of_every_architecture():
    assert {tomllib.loads(Path(each).read_text())["architecture"] for each in SMALLEST} == {name for name, _ in ARCHITECTURES}


@pytest.mark.parametrize(
    "model",
    [pytest.param(each, id=Path(each).stem) for each in SMALLEST]
    + [pytest.param(name, marks=pytest.mark.slow) for name in TINY],  # of more layers of the same kinds
)
@pytest.mark.parametrize("sp", [False, True], ids=["", "sp"])
def test_two_shards_learn_what_the_whole_learns(model, sp):
    plan = Plan(tp=2, sp=sp, global_batch=4, seq=32)
    learned = learn(Program(model, plan, read_text(), 1 + sp, seed=0, learning_rate=1e-3), Choice())
    assert learned.loss == pytest.approx(learned.reference_loss, rel=1e-5)
    assert learned.loss[-1] < learned.loss[0] or not sp
    assert learned.gradient_error < 1e-4


SHARED = [
    Plan(cp=2, global_batch=4, seq=32),
    Plan(tp=2, sp=True, cp=2, cp_comm="all_gather", recompute="selective", global_batch=4, seq=32),
]
# Attention is either latent or as Llama's, whose ranks are held to one process in tests/study/training/learn/test_learn.py.
FAST = [("deepseek-tiny", SHARED[0])]


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(name, plan, id=f"{name}-{spell(plan)}", marks=() if (name, plan) in FAST else pytest.mark.slow)
        for name in TINY
        for plan in SHARED
    ],
)
def test_ranks_that_share_sequences_learn_what_the_whole_learns(name, plan):
    learned = learn(Program(name, plan, read_text(), 1, seed=0, learning_rate=1e-3), Choice())
    assert learned.loss == pytest.approx(learned.reference_loss, rel=1e-5)
    assert learned.gradient_error < 1e-4
