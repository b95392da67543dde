"""Synchronized batch normalization on CPU tensors, in place of PyTorch's kernels, which exist for GPUs only.

PyTorch's own function makes the requests (the all_gather of statistics, the all_reduce of two gradients) and calls these five
kernels by their names. Shapes: an input has its channels in dim 1; statistics are a row of channels.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.modules._functions import SyncBatchNorm as Function
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from emu.cluster.rank_state.rank_state import Replacement


def batch_norm_replacements() -> Iterator[Replacement]:
    """Yield the replacements: the forward function, a check of DDP, and the five kernels."""
    yield SyncBatchNorm, "forward", _forward
    yield DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *_: None  # DDP would refuse it on a CPU
    for kernel in (_stats, _gather_stats_with_counts, _elemt, _backward_reduce, _backward_elemt):
        yield torch, f"batch_norm{kernel.__name__}", kernel


def _forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
    """Return the normalized input; while training, over all ranks of the layer's process group (without one: the world).

    PyTorch's own function would check the device first.
    """
    group = self.process_group or dist.group.WORLD if self.training and dist.is_initialized() else None
    if group is None or dist.get_world_size(group) == 1:
        return _BatchNorm.forward(self, input)
    self._check_input_dim(input)
    self._check_non_zero_input_channels(input)
    running = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
    size, share = dist.get_world_size(group), _share(self)
    given = (input, self.weight, self.bias, *running, self.eps, share, group, size)
    result: Tensor = Function.apply(*given)  # type: ignore[no-untyped-call]
    return result


def _share(norm: Any) -> float:
    """Return the weight of this batch in the running statistics (the momentum), and count the batch."""
    if not norm.track_running_stats:
        return float(norm.momentum or 0.0)
    norm.num_batches_tracked.add_(1)
    return float(1.0 / norm.num_batches_tracked.item() if norm.momentum is None else norm.momentum)


def _dims(input: Tensor) -> list[int]:  # noqa: A002
    """Return the numbers of all dims but dim 1, that of the channels."""
    return [dim for dim in range(input.dim()) if dim != 1]


def _row(values: Tensor, input: Tensor) -> Tensor:  # noqa: A002
    """Return one value for each channel, reshaped so that it broadcasts to the input."""
    return values.reshape(1, -1, *[1] * (input.dim() - 2))


def _wide(input: Tensor) -> Tensor:  # noqa: A002
    """Return the input in float32, the dtype for means and variances; a float64 input is returned unchanged."""
    return input if input.dtype == torch.float64 else input.float()


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Return mean and inverse standard deviation of this rank's batch."""
    variance, mean = torch.var_mean(_wide(input), _dims(input), correction=0)
    return mean, (variance + eps).rsqrt()


def _gather_stats_with_counts(
    input: Tensor,  # noqa: A002
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return [channel] the mean and the inverse standard deviation over the batches of all ranks.

    They are computed from the means and the inverse standard deviations [rank, channel] of the single batches.
    """
    of, n = counts.to(mean.dtype).reshape(-1, 1), float(counts.sum())
    whole = (mean * of).sum(0) / n
    squares = ((invstd.square().reciprocal() - eps + (mean - whole).square()) * of).sum(0)
    for running, now in ((running_mean, whole), (running_var, squares / max(n - 1, 1))):
        if running is not None:
            running.mul_(1 - momentum).add_(now.to(running.dtype), alpha=momentum)
    return whole, (squares / n + eps).rsqrt()


def _elemt(input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float) -> Tensor:  # noqa: A002
    """Return the input, normalized by mean and inverse standard deviation, scaled by `weight` and shifted by `bias`."""
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return torch.addcmul(_row(shift, input), _wide(input), _row(scale, input)).to(input.dtype)


def _backward_reduce(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    *needs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the two sums over this rank's batch that input gradients need, and the gradients of weight and bias."""
    wide = _wide(grad_out)
    whole = wide.sum(_dims(input))
    along = (wide * (_wide(input) - _row(mean, input))).sum(_dims(input))
    kind = whole.dtype if weight is None else weight.dtype
    return whole, along, (along * invstd).to(kind), whole.to(kind)


def _backward_elemt(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Return the gradient of the input of the normalization."""
    n = float(count.sum())
    centred = _wide(grad_out) - _row(sum_dy / n, input)
    along = (_wide(input) - _row(mean, input)) * _row(sum_dy_xmu * invstd.square() / n, input)
    scale = invstd if weight is None else invstd * weight
    return ((centred - along) * _row(scale, input)).to(input.dtype)
