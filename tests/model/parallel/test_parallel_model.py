"""Building and sharding a module; that sharded ranks learn the same is held in tests/study/training/learn/test_learn.py."""

import re
from dataclasses import replace

import pytest
import torch

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.parallel.data_parallel import clip_gradients
from emu.model.parallel.mesh import build_mesh, build_meshes, flat_mesh, local_tensor
from emu.model.parallel.parallel_model import build_module, parallelize
from emu.model.plan.plan import AXES, Plan
from emu.model.plan.plan_text import spell

TINY, MOE = MODELS.find("llama-tiny"), MODELS.find("gpt-moe-tiny")


def on_ranks(plan, body):
    return ThreadRanks(plan.world).run(body)


PLANS = [
    Plan(tp=2),
    Plan(dp=2),
    Plan(tp=2, dp=2),
    Plan(tp=4),
    Plan(tp=2, sp=True),
    Plan(dp=3, sharding="fsdp", global_batch=3),
    Plan(dp=4, sharding="fsdp", shard=2),
    Plan(tp=2, dp=2, sharding="fsdp"),
    Plan(pp=2, tp=2, dp=2),
    Plan(pp=2, dp=2, sharding="zero1", recompute="full"),
]


OF_EXPERTS = [
    Plan(dp=4, ep=2),
    Plan(dp=4, ep=2, sharding="fsdp"),
    Plan(tp=2, ep=2, dp=2, pp=2),
    Plan(tp=2, sp=True, ep=2, etp=1, pp=2, sharding="fsdp"),
    Plan(dp=4, ep=2, etp=2, pp=2, sharding="zero1"),
]


@pytest.mark.parametrize(
    ("model", "plan"),
    [*((TINY, plan) for plan in PLANS), *((MOE, plan) for plan in OF_EXPERTS)],
    ids=lambda value: spell(value) if isinstance(value, Plan) else value.name,
)
def test_the_parts_of_all_ranks_together_are_the_whole_initial_weights(model, plan):
    def body(rank):
        whole = build_module(model, plan, seed=5)
        parallel = parallelize(whole, model, build_meshes(plan), plan, rank)
        return parallel.held, {name: local_tensor(p.detach()).clone() for name, p in parallel.parameters.items()}

    expected = dict(build_module(model, plan.alone(), seed=5).named_parameters())
    seen = {name: torch.zeros_like(p, dtype=torch.int) for name, p in expected.items()}
    for held, parts in on_ranks(plan, body):
        for name, part in parts.items():
            assert torch.equal(part, held[name].cut(expected[name]))
            held[name].cut(seen[name]).add_(1)
    for name, times in seen.items():
        assert 0 < times.min() == times.max(), name


@pytest.mark.parametrize("plan", [plan for plan in OF_EXPERTS if plan.sharding != "fsdp"], ids=spell)
def test_the_norm_counts_every_gradient_once_whoever_has_its_parts(plan):
    """Copies of experts, and of a table of words at both ends of a pipeline, count once."""
    gradients = {name: p.detach() for name, p in build_module(MOE, plan.alone(), seed=7).named_parameters()}
    whole = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()

    def body(rank):
        meshes = build_meshes(plan)
        parallel = parallelize(build_module(MOE, plan, seed=5), MOE, meshes, plan, rank)
        for name, parameter in parallel.parameters.items():
            parameter.grad = parallel.held[name].cut(gradients[name]).clone()
        norm = clip_gradients(parallel.parameters, parallel.held, meshes, limit=1.0)
        cut = {name: parallel.held[name].cut(gradients[name]) / norm for name in parallel.parameters}
        return norm, all(torch.allclose(p.grad, cut[name]) for name, p in parallel.parameters.items())

    for norm, scaled in on_ranks(plan, body):
        torch.testing.assert_close(norm, whole)
        assert scaled


def test_a_plan_cuts_what_a_rank_holds():
    """By tp, by the stages of a pipeline, by the ranks that shard states; not by ranks that only see other tokens."""

    def held(plan):
        def body(rank):
            parallel = parallelize(build_module(TINY, plan, 0), TINY, build_meshes(plan), plan, rank)
            return sum(local_tensor(p).numel() for p in parallel.parameters.values())

        return on_ranks(plan, body)

    whole = TINY.parameters()
    assert held(Plan(dp=2)) == [whole] * 2
    assert held(Plan(tp=2)) == [TINY.parameters(2)] * 2
    assert sum(held(Plan(pp=2))) == whole
    assert sum(held(Plan(dp=4, sharding="fsdp"))) == whole
    assert sum(held(Plan(dp=4, sharding="fsdp", shard=2))) == 2 * whole


def test_building_leaves_the_generator_alone():
    before = torch.get_rng_state()
    build_module(TINY, Plan(), seed=9)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_mesh_is_the_plans_groups():
    plan = Plan(tp=2, cp=2, dp=2, pp=2)

    def body(rank):
        mesh = build_mesh(plan)
        return [tuple(mesh[axis].mesh.tolist()) for axis in AXES] + [tuple(flat_mesh(mesh, "dp", "cp").mesh.tolist())]

    for rank, found in enumerate(on_ranks(plan, body)):
        for axis, members in zip((*AXES, "cp+dp"), found, strict=True):
            assert members in plan.groups(axis)
            assert rank in members


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"layers.*.atention": "shared"}, "model: a path of its shards must be the name of a module, got 'layers.*.atention'"),
        ({"output": "colwis"}, "no style of a shard is called 'colwis'; did you mean colwise or rowwise?"),
    ],
)
def test_shards_that_name_nothing_are_refused(shards, message):
    plan, damaged = Plan(tp=2), replace(TINY, shards=shards)

    def body(rank):
        parallelize(build_module(TINY, plan, 0), damaged, build_meshes(plan), plan, rank)

    with pytest.raises(InputError, match=re.escape(message)):
        on_ranks(plan, body)
