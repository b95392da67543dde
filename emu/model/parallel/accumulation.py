"""Gradient accumulation: the passes of one step on a rank that has all layers; gradients add up and are reduced once."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

Loss = Callable[[Tensor, Tensor], Tensor]


def accumulate(module: nn.Module, passes: int, loss: Loss, tokens: Tensor, targets: Tensor) -> list[Tensor]:
    """Run forward and backward of each pass; return the loss of each as its share of the rank's mean.

    Args:
        module: The whole model.
        passes: The number of passes; only the last backward pass reduces gradients.
        loss: A function of logits and targets.
        tokens: [sequences of the rank, T]
        targets: A tensor of the same shape.
    """
    losses = []
    for index, (x, y) in enumerate(zip(tokens.chunk(passes), targets.chunk(passes), strict=True)):
        with _gradient_reduction(module, last=index == passes - 1):
            logits = module(x)  # they live until the next pass, as in any training loop
            share = loss(logits, y) / passes
            torch.autograd.backward(share)
        losses.append(share.detach())
    return losses


def _gradient_reduction(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    return module.no_sync() if isinstance(module, DistributedDataParallel) and not last else nullcontext()
