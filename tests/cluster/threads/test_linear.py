"""A product with a DTensor's weights gives what DTensor gives: the same bits, placements, operators and requests."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.nn import functional

from emu.backend.rank.record import Recording
from emu.cluster.threads import linear
from emu.cluster.threads.threads import ThreadRanks

WHOLE, FIRST = Replicate(), Shard(0)
Program = Callable[[int], object]


def laid(whole: Tensor, mesh: DeviceMesh, at: Placement) -> DTensor:
    """Every rank has the whole, and keeps its part: none is sent."""
    return distribute_tensor(whole.clone(), mesh, [at], src_data_rank=None)


def product(x: Tensor, x_at: Placement, weight_at: Placement, out_at: Placement, *, bias: bool = False) -> Program:
    """A program: a product and its gradients, of tensors that lie so."""

    def program(rank: int) -> object:
        torch.manual_seed(0)
        weight, mesh = torch.randn(8, x.size(-1)), init_device_mesh("cpu", (2,))
        given = laid(x, mesh, x_at).requires_grad_()
        weights = laid(weight, mesh, weight_at).requires_grad_()
        added = laid(torch.randn(8), mesh, FIRST).requires_grad_() if bias else None
        out = functional.linear(given, weights, added)
        own = type(out.grad_fn).__name__
        shown = out.redistribute(placements=[out_at]).to_local()
        shown.square().sum().backward()
        found: list[object] = [own]
        for each in (out, given.grad, weights.grad):
            assert isinstance(each, DTensor)
            found += [each.placements, each.shape, each.stride(), each.to_local().detach().clone()]
        return found

    return program


def ran(program: Program) -> tuple[list[list[object]], str]:
    """Run a program on two ranks; return what each gives, and the digest of what was recorded."""
    recording = Recording(2)
    return ThreadRanks(2, recording=recording).run(program), recording.trace().digest()  # type: ignore[return-value]


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("cut", ["columns", "rows", "rows to tokens"])
def test_a_product_by_columns_or_by_rows_gives_what_dtensor_gives_in_one_step(cut, shape, monkeypatch) -> None:
    x, last = torch.randn(shape, generator=torch.Generator().manual_seed(1)), Shard(len(shape) - 1)
    program = product(
        x, *{"columns": (WHOLE, FIRST, last), "rows": (last, Shard(1), WHOLE), "rows to tokens": (last, Shard(1), FIRST)}[cut]
    )
    ran(program)  # in a process the first run holds 8 bytes more
    found, did = ran(program)
    monkeypatch.setattr(linear, "one_step_linear", lambda native: native)
    wanted, would = ran(program)
    assert [each[0] for each in found] == ["_ProductBackward"] * 2
    assert [each[0] for each in wanted] != ["_ProductBackward"] * 2
    for one, other in zip(found, wanted, strict=True):
        assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(one[1:], other[1:], strict=True))
    assert did == would


@pytest.mark.parametrize(
    ("at", "bias"), [((FIRST, WHOLE, FIRST), False), ((WHOLE, WHOLE, WHOLE), False), ((WHOLE, FIRST, Shard(2)), True)]
)
def test_what_is_cut_otherwise_or_has_a_bias_is_dtensors_own(at, bias) -> None:
    found, _ = ran(product(torch.randn(2, 3, 4), *at, bias=bias))
    assert all(each[0] != "_ProductBackward" for each in found)


def test_a_gradient_that_lies_elsewhere_is_brought_to_where_the_product_needs_it() -> None:
    """The product is cut by columns, and its gradient comes whole to every rank."""

    def program(rank: int) -> list[Tensor]:
        mesh = init_device_mesh("cpu", (2,))
        x, weight = torch.arange(8.0).view(2, 4), torch.arange(12.0).view(3, 4) / 7
        given, weights = (laid(t, mesh, p).requires_grad_() for t, p in ((x, WHOLE), (weight, FIRST)))
        functional.linear(given, weights).backward(laid(torch.ones(2, 3), mesh, WHOLE))
        assert isinstance(given.grad, DTensor)
        assert isinstance(weights.grad, DTensor)
        assert given.grad.placements == (Partial(),)
        return [given.grad.full_tensor(), weights.grad.full_tensor()]

    x, weight = torch.arange(8.0).view(2, 4).requires_grad_(), (torch.arange(12.0).view(3, 4) / 7).requires_grad_()
    functional.linear(x, weight).sum().backward()
    for into, of_weight in ThreadRanks(2).run(program):
        torch.testing.assert_close(into, x.grad)
        torch.testing.assert_close(of_weight, weight.grad)


@pytest.mark.parametrize("cut", [(WHOLE, FIRST), (Shard(1), Shard(1))], ids=["columns", "rows"])
@pytest.mark.parametrize("inputs", [[(0,), (1,)], [(0, 1)]], ids=["in two", "in one"])
def test_a_backward_runs_the_products_of_what_it_is_asked_for_and_no_others(cut, inputs, monkeypatch) -> None:
    """A pipeline's backward in two asks first for what goes into a stage, and for the gradients of weights when it has time."""

    def program(rank: int) -> list[Tensor]:
        mesh = init_device_mesh("cpu", (2,))
        into, weights = (
            laid(torch.arange(16.0).view(4, 4) / n, mesh, at).requires_grad_() for n, at in ((3, cut[0]), (7, cut[1]))
        )
        out = functional.linear(into * 2, weights).to_local()
        asked = [[(into, weights)[each] for each in several] for several in inputs]
        found = [torch.autograd.grad(out, each, torch.ones_like(out), retain_graph=True) for each in asked]
        return [each.to_local() for several in found for each in several if isinstance(each, DTensor)]

    ran(program)  # in a process the first run holds 8 bytes more
    found, did = ran(program)
    monkeypatch.setattr(linear, "one_step_linear", lambda native: native)
    wanted, would = ran(program)
    assert all(torch.equal(a, b) for one, other in zip(found, wanted, strict=True) for a, b in zip(one, other, strict=True))
    assert all(len(each) == 2 for each in found)
    assert did == would
