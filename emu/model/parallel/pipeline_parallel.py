"""Pipeline parallelism: PyTorch's own orders run the microbatches of a step through the stages."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor

from emu.model.model import Model
from emu.model.parallel.data_parallel import Loss, average
from emu.model.parallel.expert_parallel import blocks_of
from emu.model.parallel.mesh import flat_mesh
from emu.model.pipeline_order import ORDERS
from emu.model.plan.plan import REPLICATE, SHARD, Plan

_CLASSES = {  # PyTorch's name of each order
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}


class _Stage(PipelineStage):
    """A pipeline stage that averages gradients itself if a split backward pass bypasses the hooks of DDP.

    PyTorch's `stage_backward_weight` writes them directly (torch.distributed.pipelining, 2.13).
    """

    others: DeviceMesh | None = None  # the ranks to average over; None: DDP or FSDP does it
    left_out: frozenset[nn.Parameter] = frozenset()  # parameters of experts, summed over other ranks, or of another stage

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Average the gradients after the last gradient of the last microbatch."""
        super().perform_reduce_grad(grad_scale_factor)
        for p in self.submod.parameters():
            if isinstance(p.grad, DTensor) and isinstance(p, DTensor) and p.grad.placements != p.placements:
                p.grad = p.grad.redistribute(
                    placements=p.placements
                )  # for example a table's gradient, which is at first that of the whole table
        if self.others is not None and self.others.size() > 1:
            average([p.grad for p in self.submod.parameters() if p.grad is not None and p not in self.left_out], self.others)


def _average_by_stage(stages: Sequence[_Stage], plan: Plan, mesh: DeviceMesh) -> None:
    """Set the group and the parameters with which each stage averages its own gradients, for orders that split backwards.

    A stage leaves out the parameters of experts to which token rows are sent. Two stages of a rank may share a parameter: the
    first of them averages its gradient, because the last contribution to it comes from there.
    """
    before = frozenset[nn.Parameter]()
    for each in stages:
        each.others = flat_mesh(mesh, "dp", REPLICATE, SHARD, "cp")
        blocks = blocks_of(each.submod).values() if plan.exchanges else ()
        each.left_out = before.union(*(block.parameters() for block in blocks))
        before = before.union(each.submod.parameters())


class Pipeline:
    """The stages of one rank as a pipeline, with the order in which it runs microbatches."""

    def __init__(self, stages: Mapping[int, nn.Module], model: Model, plan: Plan, mesh: DeviceMesh, loss: Loss) -> None:
        self._has, self._last = frozenset(stages), plan.stages - 1
        group = mesh["pp"].get_group()
        made = [
            _Stage(
                module,
                number,
                plan.stages,
                torch.device("cpu"),
                input_args=_input_of(number, model, plan),
                output_args=_input_of(number + 1, model, plan),
                group=group,
            )
            for number, module in stages.items()
        ]
        if ORDERS[plan.pipeline].splits:
            _average_by_stage(made, plan, mesh)
        kind: Any = get_schedule_class(_CLASSES[plan.pipeline])
        single = issubclass(kind, PipelineScheduleSingle)
        # PyTorch would divide only the gradients that it finds after the first forward; DDP then hides some.
        shares = {"loss_fn": partial(_share, loss, plan.passes), "scale_grads": False}
        self._order = kind(made[0] if single else made, n_microbatches=plan.passes, **shares)

    def step(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """Run forward and backward of all microbatches; return the losses on the rank of the last stage, as shares of the mean.

        Args:
            tokens: [sequences of the rank, T]
            targets: A tensor of the same shape.
        """
        losses: list[Tensor] = []
        given = (tokens,) if 0 in self._has else ()
        told: dict[str, Any] = {"target": targets, "losses": losses} if self._last in self._has else {}
        # Else the last stage would keep the logits of all microbatches, and put them together at the end.
        self._order.step(*given, return_outputs=False, **told)
        return [loss.detach() for loss in losses]


def _share(loss: Loss, passes: int, output: Tensor, target: Tensor) -> Tensor:
    return loss(output, target) / passes


def _input_of(stage: int, model: Model, plan: Plan) -> Tensor:
    """Return the input of a stage without its data; for the number after the last stage, the output of the last stage."""
    if stage == 0:
        return torch.empty(plan.pass_batch, plan.rank_seq, dtype=torch.long, device="meta")
    if stage == plan.stages:
        return torch.empty(plan.pass_batch, plan.rank_seq, model.vocab, device="meta")
    tokens = plan.rank_seq // (plan.tp if plan.sp else 1)
    return torch.empty(plan.pass_batch, tokens, model.hidden, device="meta", requires_grad=True)
