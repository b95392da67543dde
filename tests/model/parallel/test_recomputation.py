"""Selective recomputation: which operators of a layer run again in its backward, counted as they run."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from emu.model.parallel.context_parallel import _contexts


class Counted(TorchDispatchMode):
    """Counts the operators that run while it is on, by name."""

    def __init__(self):
        super().__init__()
        self.ran = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.ran[operator.name()] += 1
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("products", [1, 2, 5, 6])
def test_every_second_product_is_worked_out_again_and_all_between_them(products):
    """PyTorch's torchtitan keeps the first product, not the second, and so on (recomputation `op`)."""
    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(products)]

    def layer(x):
        for weight in weights:
            x = torch.sigmoid(x @ weight)
        return x

    of = checkpoint(layer, torch.randn(4, 4, requires_grad=True), use_reentrant=False, context_fn=_contexts)
    with Counted() as counted:
        of.sum().backward()
    gradients = 2 * products  # of a product's two operands
    assert counted.ran["aten::mm"] == gradients + products // 2
    assert counted.ran["aten::sigmoid"] == products
