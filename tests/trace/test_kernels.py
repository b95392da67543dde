"""How long kernels take: the clock of the machine, tiles of products, a table for attention, and kernels that were measured."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.device.attention_rate import AttentionRate
from emu.trace.device.device import Device
from emu.trace.device.measured import MeasuredKernel, events_of
from emu.trace.kernel_shape import MOVES, Kernel, Shape
from emu.trace.timed_dtype import AS_RAN

PEAKS = {"float32": 1e12, "bfloat16": 4e12}
DEVICE = Device("npu", PEAKS, hbm_Bps=1e15, gemm_share=1.0, unhidden_share=0.0, hbm_efficiency=1.0)
HEADS = [
    AttentionRate("fa2", 2, head, causal, False, length, share)
    for causal, shares in ((False, {64: (0.2, 0.4), 128: (0.4, 0.6)}), (True, {64: (0.1, 0.3), 128: (0.2, 0.5)}))
    for head, of_lengths in shares.items()
    for length, share in zip((1024, 4096), of_lengths, strict=True)
]
TABLE = replace(DEVICE, attention=tuple(HEADS), attention_kernel="fa2", attention_efficiency=0.05)


def product(m, n, k, batch=1, dtype="bfloat16", seconds=1.0):
    return MeasuredKernel(Kernel.PRODUCT, dtype, seconds, batch, m, n, k, bytes=1)


def attention(kernel, length, head, dtype="bfloat16"):
    return MeasuredKernel(kernel, dtype, 1.0, 8, length, length, head)


def seconds(device, *kernels):
    return device.seconds(events_of(kernels), AS_RAN).tolist()


def share(device, kernel, dtype="bfloat16"):
    """Return the share of the peak that an attention reaches."""
    counted = kernel.flops / (2 if kernel.kernel in (Kernel.CAUSAL, Kernel.CAUSAL_BACKWARD) else 1)
    return counted / (seconds(device, kernel)[0] * PEAKS[dtype])


def test_a_clock_slows_arithmetic_and_leaves_memory_alone():
    arithmetic = product(1024, 1024, 1024), attention(Kernel.CAUSAL, 1024, 64)
    slow = replace(DEVICE, clock=0.5)
    assert seconds(slow, *arithmetic) == pytest.approx([2 * s for s in seconds(DEVICE, *arithmetic)], rel=1e-12)
    moved = MeasuredKernel(Kernel.OTHER, "bfloat16", 1.0, bytes=10**9)
    assert seconds(slow, moved) == seconds(DEVICE, moved)


def test_a_last_wave_costs_what_is_not_split_on():
    """Five tiles on four cores: two whole waves, or five fourths of one."""
    five = product(5 * 128, 256, 4096)
    whole, half, none = (seconds(replace(DEVICE, cores=4, last_wave=q), five)[0] for q in (1, 0.5, 0))
    assert whole / none == pytest.approx(8 / 5, rel=1e-12)
    assert half == pytest.approx((whole + none) / 2, rel=1e-12)


def test_a_prologue_counts_once_for_each_tile_whatever_k_is():
    device = replace(DEVICE, cores=1, prologue_s=1e-6)
    for k in (64, 4096):
        bare, around = (seconds(d, product(256, 512, k))[0] for d in (replace(device, prologue_s=0.0), device))
        assert around - bare == pytest.approx(4e-6, rel=1e-9)  # 2 x 2 tiles


def test_a_narrow_product_takes_a_smaller_tile_where_that_is_sooner():
    device = replace(DEVICE, cores=1)
    narrow, wide = product(1024, 64, 512), product(1024, 1024, 512)
    one, several = device, replace(device, narrow=0.5)
    assert seconds(several, narrow)[0] < 0.6 * seconds(one, narrow)[0]
    assert seconds(several, narrow)[0] > 2 * 1024 * 64 * 512 / PEAKS["bfloat16"]  # no tile is as good as the largest one full
    assert seconds(several, wide) == seconds(one, wide)


def test_products_take_longer_the_larger_they_are():
    device = replace(DEVICE, cores=132, narrow=0.8, last_wave=0.5, prologue_s=3e-6)
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        grown = [product(*(1000 + grows * 777 * step for grows in sizes)) for step in range(20)]
        assert all(a <= b * (1 + 1e-12) for a, b in pairwise(seconds(device, *grown)))


@pytest.mark.parametrize(
    ("kernel", "length", "head", "expected"),
    [
        (Kernel.ATTENTION, 1024, 64, 0.2),
        (Kernel.ATTENTION, 2048, 64, 0.3),  # between, by the logarithm
        (Kernel.ATTENTION, 4096, 128, 0.6),
        (Kernel.CAUSAL, 4096, 128, 0.5),
        (Kernel.CAUSAL, 512, 64, 0.1),  # outside: the nearest
        (Kernel.CAUSAL, 2**20, 512, 0.5),
    ],
)
def test_attention_is_as_fast_as_its_table_says(kernel, length, head, expected):
    assert share(TABLE, attention(kernel, length, head)) == pytest.approx(expected, rel=1e-9)


def test_a_kernel_of_attention_that_the_table_lacks_has_the_share_of_the_device():
    assert share(replace(TABLE, attention_kernel="fa3"), attention(Kernel.CAUSAL, 1024, 64)) == pytest.approx(0.05, rel=1e-9)
    assert share(TABLE, attention(Kernel.CAUSAL, 1024, 64, "float32"), "float32") == pytest.approx(0.05, rel=1e-9)
    assert share(TABLE, attention(Kernel.CAUSAL_BACKWARD, 1024, 64)) == pytest.approx(0.05, rel=1e-9)


def test_a_backward_without_a_row_of_its_mask_loses_by_the_mask_what_the_forward_loses():
    backward = (AttentionRate("fa2", 2, 128, False, True, length, 0.3) for length in (1024, 4096))
    device = replace(TABLE, attention=(*HEADS, *backward))
    assert share(device, attention(Kernel.CAUSAL_BACKWARD, 4096, 128)) == pytest.approx(0.3 * 0.5 / 0.6, rel=1e-9)
    assert share(device, attention(Kernel.ATTENTION_BACKWARD, 4096, 128)) == pytest.approx(0.3, rel=1e-9)


def test_a_shape_of_attention_knows_its_backward():
    forward = Shape(Kernel.CAUSAL, 8, 64, 64, 16)
    assert forward.backward().kernel == Kernel.CAUSAL_BACKWARD
    assert forward.backward().unmasked(keys=2) == forward.unmasked(keys=2).backward()
    assert forward.backward().unmasked(keys=2) == (Kernel.ATTENTION_BACKWARD, 8, 64, 32, 16)
    assert Shape(Kernel.PRODUCT, 1, 2, 3, 4).backward().kernel == Kernel.PRODUCT
    assert MOVES.backward() == MOVES


def test_a_kernel_that_was_measured_takes_what_was_measured_and_others_between():
    rows = product(1024, 1024, 1024, seconds=1e-3), product(4096, 1024, 1024, seconds=8e-3)
    device = replace(DEVICE, measured=rows)
    assert seconds(device, *rows) == pytest.approx([1e-3, 8e-3], rel=1e-12)
    between, model = product(2048, 1024, 1024), seconds(DEVICE, product(2048, 1024, 1024), *rows)
    ratios = 1e-3 / model[1], 8e-3 / model[2]
    assert seconds(device, between)[0] / model[0] == pytest.approx(np.sqrt(ratios[0] * ratios[1]), rel=1e-9)
    alone = attention(Kernel.CAUSAL, 1024, 64)
    assert seconds(device, alone) == seconds(DEVICE, alone)  # nothing like it was measured


def test_operators_that_move_bytes_are_told_apart_by_name_where_one_was_measured():
    rows = [
        MeasuredKernel(Kernel.OTHER, "bfloat16", 2e-6, bytes=10**6, name="mul"),
        MeasuredKernel(Kernel.OTHER, "bfloat16", 5e-6, bytes=10**6),
    ]
    device = replace(DEVICE, measured=tuple(rows))
    others = (rows[0]._replace(bytes=2 * 10**6), rows[0]._replace(name="silu"))
    assert seconds(device, *rows, *others) == pytest.approx([2e-6, 5e-6, 4e-6, 5e-6], rel=1e-9)


def test_a_product_of_a_dtype_that_was_not_measured_is_refused_with_the_nearest():
    device = replace(DEVICE, measured=(product(64, 64, 64),))
    with pytest.raises(InputError, match="no dtype of the products measured on npu is called 'float32'; did you mean bfloat16"):
        seconds(device, product(64, 64, 64, dtype="float32"))
