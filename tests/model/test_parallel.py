"""Building and sharding a module; that sharded ranks learn the same is held in tests/study/training/test_learn.py."""

import re

import pytest
import torch

from emu.cluster.threads import Threads
from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.parallel import build_mesh, build_module, parallelize
from emu.model.plan import Plan

TINY = MODELS.find("llama-tiny")


def on_ranks(plan, body):
    return Threads(plan.world).run(body)


@pytest.mark.parametrize("plan", [Plan(tp=2), Plan(dp=2), Plan(tp=2, dp=2), Plan(tp=4)])
def test_shards_put_together_are_the_whole_initial_weights(plan):
    def body(rank):
        module = build_module(TINY, plan, seed=5)
        parallel = parallelize(module, build_mesh(plan), plan, TINY.shards)
        return parallel.shard_dim, {name: p.detach().clone() for name, p in parallel.parameters.items()}

    whole = dict(build_module(TINY, plan.alone(), seed=5).named_parameters())
    ranks = on_ranks(plan, body)
    for first in range(0, plan.world, plan.tp):
        group = ranks[first : first + plan.tp]
        assert sum(p.numel() for p in group[0][1].values()) == TINY.parameters(plan.tp)
        for name, expected in whole.items():
            dim, shards = group[0][0].get(name), [parameters[name] for _, parameters in group]
            together = shards[0] if dim is None else torch.cat(shards, dim)
            assert torch.equal(together, expected)
            assert all(type(s) is torch.Tensor for s in shards)


def test_building_leaves_the_generator_alone():
    before = torch.get_rng_state()
    build_module(TINY, Plan(), seed=9)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_mesh_is_the_plans_groups():
    plan = Plan(tp=2, dp=2)

    def body(rank):
        mesh = build_mesh(plan)
        return [tuple(mesh[axis].mesh.tolist()) for axis in ("tp", "dp")]

    for rank, (tp, dp) in enumerate(on_ranks(plan, body)):
        assert tp in plan.groups("tp")
        assert dp in plan.groups("dp")
        assert rank in tp
        assert rank in dp


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"layers.*.atention": "shared"}, "model: a path of its shards must be the name of a module, got 'layers.*.atention'"),
        ({"output": "colwis"}, "registry: no style of a shard is called 'colwis'; did you mean colwise or rowwise?"),
    ],
)
def test_shards_that_name_nothing_are_refused(shards, message):
    def body(rank):
        parallelize(build_module(TINY, Plan(), 0), build_mesh(Plan(tp=2)), Plan(tp=2), shards)

    with pytest.raises(InputError, match=re.escape(message)):
        on_ranks(Plan(tp=2), body)
