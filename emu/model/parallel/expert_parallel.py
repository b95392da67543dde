"""Expert parallelism: each rank has some experts, and rows of tokens are sent to them and back.

Experts are sharded over `ep` by their number, and over `etp` by the columns of their first products and the rows of their last.
A rank routes its own tokens. An all_to_all over `ep` takes each row to a rank of its expert: first the number of rows of each
expert, if no capacity fixes it, then the rows. An all_gather over `etp` brings the rows of all ranks that share the experts.
After the experts a reduce_scatter over `etp` sums their results, and an all_to_all brings the rows back. Backward, the same
happens in the other direction.

Under tensor parallelism each rank's own tokens are those that sequence parallelism gives it. Without sequence parallelism,
where Megatron-LM trains no experts, the tokens of the block are cut over `tp` as with it, and the result is gathered: so no
token is sent twice. Source: Singh et al., A Hybrid Tensor-Expert-Data Parallelism Approach (2023), section 5.1 (duplicate token
dropping).

Loss is a mean over dp * cp ranks, and the ranks of `edp` that have an expert see each token once: so the sum of their gradients
divided by dp * cp is that of one process. Megatron-LM has the same as an average over edp, times edp / (dp * cp).

Source: Megatron-LM, core/transformer/moe/token_dispatcher (the all-to-all one) and core/distributed.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Shard, distribute_tensor

from emu.model.parallel.mesh import local_tensor, sub_mesh
from emu.model.parts.expert_block import ExpertBlock, Experts
from emu.model.plan.plan import Plan


def shard_experts(module: nn.Module, mesh: DeviceMesh, plan: Plan) -> None:
    """Keep only this rank's share of the experts' weights, and make the module send token rows to their experts, in place.

    Args:
        module: A module with whole weights, equal on every rank, so that none is sent.
        mesh: The mesh of experts, `Meshes.experts`.
        plan: The plan, with the sizes of the axes.
    """
    over = sub_mesh(mesh, "ep", "etp")
    for block in (each for each in module.modules() if isinstance(each, ExpertBlock)):
        if over is None:
            return
        for name, weight in list(block.experts.named_parameters()):
            parts: dict[str, Placement] = {"ep": Shard(0), "etp": Shard(1) if name == "w2" else Shard(2)}  # [E, in, out]
            cut = distribute_tensor(weight, over, [parts[axis] for axis in over.mesh_dim_names or ()], src_data_rank=None)
            block.experts.register_parameter(name, nn.Parameter(cut))
        block.exchange = _Exchange(over, counted=not plan.capacity)


def blocks_of(module: nn.Module) -> dict[str, Experts]:
    """Return the module of the experts' weights of each block, by name."""
    return {name: each for name, each in module.named_modules() if isinstance(each, Experts)}


class _Exchange(nn.Module):
    """The exchange of a block of experts: rows travel to the ranks of their experts, through the experts, and back."""

    def __init__(self, mesh: DeviceMesh, *, counted: bool) -> None:
        super().__init__()
        names = mesh.mesh_dim_names or ()
        self._ep, self._etp = (mesh.get_group(axis) if axis in names else None for axis in ("ep", "etp"))
        self._counted = counted

    def forward(self, experts: nn.Module, rows: Tensor, counts: Tensor) -> Tensor:
        """Return the results of all experts for the given rows; `experts` holds the experts of this rank."""
        with torch.no_grad():
            given = counts.view(self._ep.size() if self._ep else 1, -1)  # [ranks of ep, their experts]
            taken = self._counts_from_ranks(given)
            all_taken = self._counts_of_shards(taken)
            order = _order_by_expert(all_taken)
        there, back = given.sum(1).tolist(), taken.sum(1).tolist()
        shares = all_taken.sum((1, 2)).tolist()
        rows = _exchange(rows, back, there, self._ep)
        if self._etp is not None:
            rows = _ShareRows.apply(rows, shares, self._etp, True)  # type: ignore[no-untyped-call]
        out = experts(rows.index_select(0, order), all_taken.sum((0, 1))).index_select(0, order.argsort())
        if self._etp is not None:
            out = _ShareRows.apply(out, shares, self._etp, False)  # type: ignore[no-untyped-call]
        return _exchange(out, there, back, self._ep)

    def _counts_from_ranks(self, given: Tensor) -> Tensor:
        """Return [ranks of ep, experts of this rank] the number of rows that each rank sends."""
        if (
            self._ep is None or not self._counted
        ):  # with a capacity every expert is filled up, so all ranks give the same numbers
            return given
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given.contiguous(), group=self._ep)
        return taken

    def _counts_of_shards(self, taken: Tensor) -> Tensor:
        """Return [ranks of etp, ranks of ep, experts of this rank] the number of rows that each rank of etp receives."""
        if self._etp is None:
            return taken[None]
        if not self._counted:
            return taken.expand(self._etp.size(), *taken.shape)
        every = taken.new_empty(self._etp.size(), *taken.shape)
        dist.all_gather_single(every, taken, group=self._etp)
        return every


def _order_by_expert(counts: Tensor) -> Tensor:
    """Return the order that sorts rows by expert; they arrive sorted by source rank, then by expert."""
    experts = torch.arange(counts.size(-1)).expand(counts.shape).flatten()
    return experts.repeat_interleave(counts.flatten()).argsort(stable=True)


def _exchange(rows: Tensor, taken: list[int], given: list[int], group: ProcessGroup | None) -> Tensor:
    return rows if group is None else all_to_all_single_autograd(rows, taken, given, group)


class _ShareRows(torch.autograd.Function):
    """An autograd function that gathers rows of all ranks, or sums and scatters them; each is the backward of the other."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], group: ProcessGroup, gathers: bool) -> Tensor:
        ctx.sizes, ctx.group, ctx.back = sizes, group, _add if gathers else _gather
        return (_gather if gathers else _add)(rows, sizes, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(gradient, ctx.sizes, ctx.group), None, None, None


def _wait_for(rows: Tensor) -> Tensor:
    """Wait for the all_to_all of rows and return them, because another collective does not wait by itself."""
    return rows.trigger_wait() if isinstance(rows, AsyncCollectiveTensor) else rows  # type: ignore[no-untyped-call]


def _gather(rows: Tensor, sizes: list[int], group: ProcessGroup) -> Tensor:
    every = rows.new_empty(sum(sizes), rows.size(1))
    dist.all_gather(list(torch.split(every, sizes)), _wait_for(rows).contiguous(), group=group)
    return every


def _add(rows: Tensor, sizes: list[int], group: ProcessGroup) -> Tensor:
    own = rows.new_empty(sizes[group.rank()], rows.size(1))
    dist.reduce_scatter(own, list(torch.split(_wait_for(rows).contiguous(), sizes)), group=group)
    return own


def localize(blocks: Iterable[Experts]) -> None:
    """Turn the experts' weights into local tensors, in place."""
    for each in blocks:
        for name, weight in list(each.named_parameters()):
            each.register_parameter(name, nn.Parameter(local_tensor(weight.detach())))


class ExpertGradientSum:
    """The gradients of one block of experts, which one request sums over `edp` before they are divided.

    The request starts when the last pass has given the block its gradients, as DDP does for its own buckets; DDP has one group
    only.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], group: ProcessGroup, plan: Plan) -> None:
        self._parameters, self._group = list(parameters), group if group.size() > 1 else None
        self._left = self._all = plan.passes * len(self._parameters)
        self._ranks = plan.copies
        self._asked: tuple[Tensor, dist.Work | None] | None = None
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]

    def _on_gradient(self, _: Tensor) -> None:
        self._left -= 1
        if not self._left:
            self._ask()

    @torch.no_grad()
    def _ask(self) -> None:
        bucket = torch.cat([p.grad.flatten() for p in self._parameters if p.grad is not None]).div_(self._ranks)
        work = dist.all_reduce(bucket, group=self._group, async_op=True) if self._group is not None else None
        self._asked = bucket, work

    @torch.no_grad()
    def settle(self) -> None:
        """Wait for the sum and copy it into the gradients; start it first if a split backward pass did not."""
        if self._asked is None:
            self._ask()
        assert self._asked is not None
        bucket, work = self._asked
        if work is not None:
            work.wait()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        parts = torch.split(bucket, [g.numel() for g in gradients])
        torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])
        self._asked, self._left = None, self._all
