"""The sum of one block of experts' gradients: asked once, after the last pass, divided by the copies and put back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from emu.model.parallel.expert_parallel import ExpertGradientSum
from emu.model.plan.plan import Plan

SHAPES = (2, 3), (4,), (1, 2, 2)


class Requests:
    """All reductions that were asked for, over as many equal ranks; each is done when it is waited for."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.asked, self.waited = ranks, list[Tensor](), 0

    def all_reduce(self, bucket: Tensor, group: Any, async_op: bool) -> Any:
        assert (group.size(), async_op) == (self.ranks, True)
        self.asked.append(bucket.clone())

        def wait() -> None:
            self.waited += 1
            bucket.mul_(self.ranks)

        return SimpleNamespace(wait=wait)


@pytest.fixture(params=[1, 2, 3])
def requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Requests:
    found = Requests(request.param)
    monkeypatch.setattr(dist, "all_reduce", found.all_reduce)
    return found


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(3))) for shape in SHAPES]


def backward(block: list[nn.Parameter], factor: float) -> None:
    sum(((factor * (i + 1) * p).sum() for i, p in enumerate(block)), torch.zeros(())).backward()


def summed(block: list[nn.Parameter], requests: Requests, plan: Plan) -> ExpertGradientSum:
    group = SimpleNamespace(size=lambda: requests.ranks)
    return ExpertGradientSum(block, cast("dist.ProcessGroup", group), plan)


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_it_is_asked_once_after_the_last_pass_of_each_step(requests: Requests, passes: int) -> None:
    block, plan = parameters(), Plan(dp=4, global_batch=4 * passes, microbatch=1)
    assert (plan.passes, plan.copies) == (passes, 4)
    own, alone = summed(block, requests, plan), requests.ranks == 1
    for step in range(1, 3):
        for each in range(passes):
            assert len(requests.asked) == (step - 1) * (not alone)
            backward(block, step * (each + 1))
        assert len(requests.asked) == step * (not alone)
        own.settle()
        total = step * passes * (passes + 1) / 2
        for i, p in enumerate(block):
            assert p.grad is not None
            assert torch.equal(p.grad, torch.full(p.shape, total * (i + 1) * requests.ranks / 4))
            p.grad = None
        assert requests.waited == step * (not alone)
    for step, bucket in enumerate(requests.asked, 1):
        each = [torch.full(p.shape, step * passes * (passes + 1) / 2 * (i + 1) / 4).flatten() for i, p in enumerate(block)]
        assert torch.equal(bucket, torch.cat(each))


def test_where_backwards_are_split_it_is_asked_when_it_is_settled(requests: Requests) -> None:
    """Their gradients come without the hooks of autograd; a parameter without a gradient has no part of it."""
    block, plan = parameters(), Plan(dp=2, global_batch=2, microbatch=1)
    own = summed(block, requests, plan)
    for step in range(1, 3):
        for i, p in enumerate(block):
            p.grad = None if i == 1 else torch.full(p.shape, float(step * (i + 1)))
        own.settle()
        assert requests.waited == len(requests.asked) == step * (requests.ranks > 1)
        for i, p in enumerate(block):
            if i == 1:
                assert p.grad is None
            else:
                assert p.grad is not None
                assert torch.equal(p.grad, torch.full(p.shape, step * (i + 1) * requests.ranks / 2))
