"""The dtype that products are counted in, where a script sets what CUDA may round."""

import pytest
import torch
from torch.nn import functional

from emu.cluster.threads.threads import ThreadRanks
from tests.backend.rank.counted import counted


def dtypes_of(program):
    """Return the dtypes in which one rank's operators with FLOPs compute; the settings of this process stay as they are."""

    def on_a_rank(_):
        return [o.dtype for o in counted(program) if o.flops]

    (found,) = ThreadRanks(1).run(on_a_rank)
    return found


def set_and_multiply(change):
    def program():
        change()
        SQUARE @ SQUARE
        functional.conv1d(SQUARE[None], SQUARE[None])

    return program


SQUARE = torch.ones(8, 8)
BACKENDS = torch.backends


@pytest.mark.parametrize(
    ("change", "expected"),
    {
        "nothing": (lambda: None, ["float32", "tf32"]),
        "precision": (lambda: torch.set_float32_matmul_precision("high"), ["tf32", "tf32"]),
        "and back": (lambda: [torch.set_float32_matmul_precision(p) for p in ("high", "highest")], ["float32", "tf32"]),
        "matmul": (lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True), ["tf32", "tf32"]),
        "convolutions": (lambda: setattr(BACKENDS.cudnn, "allow_tf32", False), ["float32", "float32"]),
        "convolutions by name": (lambda: setattr(BACKENDS.cudnn.conv, "fp32_precision", "ieee"), ["float32", "float32"]),
        "matmul by name": (lambda: setattr(BACKENDS.cuda.matmul, "fp32_precision", "tf32"), ["tf32", "tf32"]),
        "all": (lambda: setattr(BACKENDS, "fp32_precision", "tf32"), ["tf32", "tf32"]),
    }.values(),
)
def test_a_product_of_float32_is_of_tf32_where_the_setting_of_its_kind_lets_cuda_round(change, expected):
    assert dtypes_of(set_and_multiply(change)) == expected


def test_only_products_of_float32_are_of_tf32():
    def program():
        torch.set_float32_matmul_precision("high")
        for dtype in (torch.float64, torch.bfloat16, torch.complex64, torch.float32):
            a = SQUARE.to(dtype)
            a @ a
        functional.scaled_dot_product_attention(*[torch.ones(1, 1, 8, 8)] * 3)

    assert dtypes_of(program) == ["float64", "bfloat16", "complex64", "tf32", "float32"]
