"""The work of operators by their shapes, held against counting: each product, attention and move at sizes of its own."""

from math import prod
from typing import Any

import pytest

from emu.dtypes import DTYPES
from emu.errors import BareError
from emu.trace.formats.kineto.operator_work import KernelWork, work_of_kernel, work_of_launched, work_of_operator
from emu.trace.formats.kineto.request_arguments import BYTES, KERNEL, SIZES
from emu.trace.kernel_shape import MOVES, Kernel, Shape

BF16, FLOAT, LONG = "c10::BFloat16", "float", "long int"
MOST_SIZE, MOST = 2**31, 2**62


def work(name: str, dims: list[Any], types: list[str] | str = BF16, inputs: list[str] | None = None) -> KernelWork | None:
    of_all = [types] * len(dims) if isinstance(types, str) else types
    return work_of_operator(name, {"Input Dims": dims, "Input type": of_all, "Concrete Inputs": inputs or []})


PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_scaled_mm": 0, "_addmm_activation": 1}


@pytest.mark.parametrize(("name", "first"), list(PRODUCTS.items()))
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 8, 5, 16), ((4,), 7, 32, 3), ((1,), 1, 1, 1)])
@pytest.mark.parametrize("of", [(BF16, "bfloat16", 2), (FLOAT, "float32", 4)])
def test_a_product_multiplies_each_row_by_each_column(
    name: str, first: int, batch: tuple[int, ...], m: int, n: int, k: int, of: tuple[str, str, int]
) -> None:
    kind, dtype, item = of
    beside = [[n]] * first
    found = work(f"aten::{name}", [*beside, [*batch, m, k], [*batch, k, n], [1], [1]], kind)
    many = prod(batch)
    moved = many * (m * k + k * n + m * n)
    shape = Shape(Kernel.PRODUCT, many, m, n, k)
    assert found == KernelWork(f"aten::{name}", dtype, shape, 2.0 * many * m * n * k, item * moved, moved)


ATTENTIONS = {  # by operator: where the queries are, where the mask is, and whether heads come before the sequence
    "_flash_attention_forward": (0, 8, False), "_flash_attention_backward": (1, 11, False),
    "_efficient_attention_forward": (0, 9, False), "_efficient_attention_backward": (1, 14, False),
    "_cudnn_attention_forward": (0, 10, True), "_cudnn_attention_backward": (1, 14, True),
    "_scaled_dot_product_cudnn_attention": (0, 6, True), "_scaled_dot_product_cudnn_attention_backward": (1, 14, True),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("mask", ["True", "1", "False", "0", "", None])
def test_an_attention_multiplies_queries_keys_and_values(name: str, mask: str | None) -> None:
    at, where, heads_first = ATTENTIONS[name]
    batch, heads, queries, keys, width = 2, 6, 64, 48, 128
    query, key = ([batch, heads, rows, width] if heads_first else [batch, rows, heads, width] for rows in (queries, keys))
    inputs = [] if mask is None else ["True"] * where + [mask] + ["True"] * 3
    found = work(f"aten::{name}", [[9, 9, 9, 9]] * at + [query, key, key], BF16, [*inputs] if mask is not None else [])
    causal, back = mask in ("True", "1"), name.endswith("backward")
    kernel = {
        (0, 0): Kernel.ATTENTION,
        (1, 0): Kernel.CAUSAL,
        (0, 1): Kernel.ATTENTION_BACKWARD,
        (1, 1): Kernel.CAUSAL_BACKWARD,
    }
    products, tensors = (5, 4) if back else (2, 2)  # of a pass, and how often queries and keys are as many as it moves
    many = batch * heads
    moved = many * width * (queries + keys) * tensors
    assert found is not None
    assert found.shape == Shape(kernel[causal, back], many, queries, keys, width)
    assert found.flops == 2.0 * products * many * queries * keys * width
    assert (found.bytes, found.elements) == (2 * moved, moved)


@pytest.mark.parametrize("dims", [[[2, 64, 8, 128]], [[2, 64, 8], [2, 64, 8, 128]], [[2, 64, 8, 128], [64, 8, 128]], []])
def test_an_attention_of_another_form_is_unknown(dims: list[Any]) -> None:
    assert work("aten::_flash_attention_forward", dims) is None


def test_a_product_without_all_of_its_factors_or_their_dtypes_is_unknown() -> None:
    for dims, types in (([[8, 16]], [BF16]), ([], []), ([[8, 16], [16, 4]], []), ([[5], [8, 16]], [BF16] * 2)):
        name = "aten::addmm" if len(dims) == 2 and types else "aten::mm"
        assert work(name, dims, types) is None
    assert work_of_operator("aten::mm", {}) is None


def test_what_moves_reads_its_tensors_and_writes_one_like_the_largest() -> None:
    found = work("aten::add", [[8, 4], [4], [], [8, 2]], [BF16, FLOAT, "Scalar", BF16])
    assert found == KernelWork("aten::add", "bfloat16", MOVES, 0.0, 2 * (32 + 16) + 4 * 4 + 64, 48)
    assert work("aten::add", []) is None
    assert work("aten::add", [[], []]) is None
    assert work("aten::add", [[8]], "unheard of") is None
    assert work("aten::cat", [[[8], [8]]], "TensorList") is None


def test_a_product_of_whole_numbers_is_none_and_a_move_of_them_is_one() -> None:
    assert work("aten::mm", [[8, 16], [16, 4]], LONG) is None
    found = work("aten::add", [[8, 16]], LONG)
    assert found is not None
    assert (found.dtype, found.bytes) == ("int64", 2 * 8 * 128)


@pytest.mark.parametrize("place", range(4))
def test_each_size_of_a_product_has_its_limit(place: int) -> None:
    for size, known in ((MOST_SIZE - 1, True), (MOST_SIZE, False), (-1, False)):
        batch, m, n, k = (size if i == place else 1 for i in range(4))
        assert (work("aten::bmm", [[batch, m, k], [batch, k, n]]) is not None) == known


@pytest.mark.parametrize(("dims", "kind"), [([MOST // 4 - 1], BF16), ([MOST // 2 - 1], "bool"), ([2**30, 2**29 - 1], FLOAT)])
def test_the_bytes_of_a_move_have_their_limit(dims: list[int], kind: str) -> None:
    """The tensor is read and written; a size alone may be larger than that of a product."""
    assert work("aten::add", [dims], kind) is not None
    assert work("aten::add", [[*dims[:-1], 2 * dims[-1] + 2]], kind) is None


def test_a_kernel_of_ones_own_profile_says_what_it_does() -> None:
    sizes = dict(zip(SIZES, (1, 8, 4, 16), strict=True))
    args = {KERNEL: "Product", **sizes, "dtype": "bfloat16", "FLOPs": "1024.5", BYTES: 5, "Elements": 3}
    assert work_of_kernel("own", args) == KernelWork("own", "bfloat16", Shape(Kernel.PRODUCT, 1, 8, 4, 16), 1024.5, 5, 3)
    assert work_of_kernel("own", {**args, "dtype": "tf32"}) is not None
    assert work_of_kernel("own", {**args, "dtype": "int64"}) is None  # no device has a rate for it
    without = {name: value for name, value in args.items() if name not in SIZES}
    assert work_of_kernel("own", {**without, KERNEL: "other"}) == KernelWork("own", "bfloat16", MOVES, 1024.5, 5, 3)
    for name in SIZES:
        assert work_of_kernel("own", {**args, name: MOST_SIZE - 1}) is not None
        with pytest.raises(BareError, match=f"whole number of 0 or more and below {MOST_SIZE} as '{name}'"):
            work_of_kernel("own", {**args, name: MOST_SIZE})
    with pytest.raises(BareError, match="its 'dtype' must be one of torch's, got 'float12'"):
        work_of_kernel("own", {**args, "dtype": "float12"})
    with pytest.raises(BareError, match=r"must be one of other, product, .*, got 'sum'"):
        work_of_kernel("own", {**args, KERNEL: "sum"})


def test_copies_and_fills_have_a_limit_of_bytes() -> None:
    for name, times in (("Memcpy DtoD", 2), ("Memset (Device)", 1), ("MEMSET", 1)):
        for size in (0, 7, MOST // 2 - 1):
            assert work_of_kernel(name, {"bytes": size}) == KernelWork(name, "uint8", MOVES, 0.0, times * size, times * size)
        with pytest.raises(BareError, match=f"below {MOST // 2} as 'bytes'"):
            work_of_kernel(name, {"bytes": MOST // 2})
        assert work_of_kernel(name, {}) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_products_of_float32_are_done_in_tf32(dtype: str) -> None:
    for kernel in Kernel:
        own = KernelWork("aten::mm", dtype, Shape(kernel, 1, 2, 3, 4), 48.0, 8, 2)
        for name, rounds in (("gemm_tf32", True), ("s1688gemm_fp", True), ("sgemm", False)):
            told = work_of_launched(own, name)
            assert told.dtype == ("tf32" if rounds and dtype == "float32" and kernel is Kernel.PRODUCT else dtype)
            assert told._replace(dtype=dtype) == own
