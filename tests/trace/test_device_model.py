"""A device's model of time and its words, each held against a second computation or against sentences that are written out."""

from dataclasses import replace
from itertools import pairwise
from math import ceil, inf, log2, nextafter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.device.attention_rate import AttentionRate, attention_shares
from emu.trace.device.device import Device, expected_largest
from emu.trace.device.measured import Basis, MeasuredKernel, bases, beside, events_of
from emu.trace.device.step_error import RunKind, StepError
from emu.trace.kernel_shape import ATTENTIONS, BACKWARD, MASKED, Kernel
from emu.trace.timed_dtype import AS_RAN
from emu.trace.trace import Kind

DEVICE = Device("npu", {"float32": 1e12, "bfloat16": 4e12}, hbm_Bps=1e12, gemm_share=0.5, hbm_efficiency=0.25)
ABOVE_0, BELOW_1, TINY = 5e-324, nextafter(1, 0), 1e-12
LIMITS = {  # of each number: what is allowed at both ends, and what is not
    **dict.fromkeys(("gemm_share", "attention_efficiency", "hbm_efficiency"), ((ABOVE_0, 1), (0, 1 + TINY))),
    **dict.fromkeys(("unhidden_share", "spread", "last_wave"), ((0, 1), (-TINY, 1 + TINY))),
    "clock": ((ABOVE_0, 2), (0, 2 + TINY)),
    "contention": ((0, BELOW_1), (-TINY, 1)),
    "hbm_Bps": ((ABOVE_0, 1e300), (0, inf)),
    **dict.fromkeys(("launch_overhead_s", "request_overhead_s", "prologue_s", "atomic_adds_per_s"), ((0, 1e300), (-TINY, inf))),
    **dict.fromkeys(("cores", "memory_bytes", "narrow"), ((0, 10**9), (-1, inf))),
    "tile": (((1, 1), (1, 9)), ((0, 9), (9, 0))),
    "fp8_share": (({"row": ABOVE_0}, {"row": 1}), ({"row": 0}, {"row": 1 + TINY})),
    "peak_flops": (({"float32": ABOVE_0}, {"float32": 1e300}), ({"float32": 0}, {"float32": inf})),
}


@pytest.mark.parametrize("name", LIMITS)
def test_each_number_of_a_device_has_its_limits(name: str) -> None:
    allowed, refused = LIMITS[name]
    for value in allowed:
        assert getattr(replace(DEVICE, **{name: value}), name) == value
    for value in refused:
        with pytest.raises(InputError, match=f"npu: {name}.* must be "):
            replace(DEVICE, **{name: value})


BARE_SENTENCES = (
    "a matrix product takes its FLOPs at 0.5 of the npu's peak; and besides 0.1 of the time that its bytes take",
    "attention takes its FLOPs (half of them under a causal mask) at 0.5 of peak",
    "all other operators take the time of their bytes at 0.25 of the memory bandwidth, and no operator takes less than that",
    "these shares of the npu are fitted on nothing",
    "launching an operator takes 0 s",
)
WAVES = "a matrix product takes its FLOPs at 0.5 of the npu's peak, in waves of 7 tiles of 64 x 32"
OTHER = "; and besides 0.1 of the time that its bytes take"
SENTENCES: list[tuple[dict[str, Any], int, str]] = [
    ({"cores": 7, "tile": (64, 32)}, 0, WAVES + OTHER),
    ({"cores": 7, "tile": (64, 32), "last_wave": 0.75}, 0,
     f"{WAVES}; of the cores that the last wave leaves idle, 0.75 are lost{OTHER}"),
    ({"cores": 7, "tile": (64, 32), "prologue_s": 2e-6}, 0,
     f"{WAVES}; a tile takes 2 us before and after its main loop{OTHER}"),
    ({"cores": 7, "tile": (64, 32), "narrow": 0.5}, 0,
     f"{WAVES} or smaller ones, which are slower by the power 0.5 of their reuse{OTHER}"),
    ({"last_wave": 0.75, "prologue_s": 2e-6, "narrow": 0.5}, 0, BARE_SENTENCES[0]),  # without cores no waves are counted
    ({"attention": (AttentionRate("fa3", 2, 64, True, False, 1024, 0.5),), "attention_kernel": "fa3"}, 1,
     "attention takes its FLOPs (half of them under a causal mask) at the rate that was measured of the kernel fa3, by head "
     "size, mask, length and pass"),
    ({"attention": (AttentionRate("fa3", 2, 64, True, False, 1024, 0.5),)}, 1, BARE_SENTENCES[1]),
    ({"keeps_unknown": True}, 5, "kernels whose work the profile does not tell last as they were measured"),
    ({"fp8_share": {"row": 0.25}, "fp8_scale": "row"}, 5,
     "products in FP8 reach 0.25 of its peak, with one scale for a row"),
    ({"request_overhead_s": 3e-6}, 5, "launching a collective or a message takes 3 us on each of its ranks"),
    ({"clock": 0.9}, 5, "in a step the npu runs at 0.9 of the clock that its kernels were measured at"),
    ({"measured": (MeasuredKernel(Kernel.OTHER, "int64", 1.0, bytes=8),) * 3}, 5,
     "3 measured kernels give the times of their shapes, and correct those near"),
    ({"atomic_adds_per_s": 5e9}, 5,
     "a kernel that adds rows to rows that repeat adds 5e+09 elements a second, each by an atomic operation"),
    ({"contention": 0.125}, 5, "a collective that adds takes 12.50% of the cores from matrix products beside it"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "place", "sentence"), SENTENCES)
def test_each_number_of_a_device_changes_one_sentence_of_its_assumptions(
    changed: dict[str, Any], place: int, sentence: str
) -> None:
    assert DEVICE.assumptions == BARE_SENTENCES
    assert replace(DEVICE, **changed).assumptions == (*BARE_SENTENCES[:place], sentence, *BARE_SENTENCES[place + 1 :])


def test_a_device_whose_computations_last_as_measured_assumes_that_alone() -> None:
    said = "computations last as they were measured; a kernel that ran beside a collective keeps what that cost it"
    assert replace(DEVICE, as_measured=True, cores=7).assumptions == (said,)


def test_a_notebook_shows_the_peaks_of_a_device_on_one_line() -> None:
    shown: list[str] = []
    replace(DEVICE, memory_bytes=80 * 2**30)._repr_pretty_(SimpleNamespace(text=shown.append))
    assert shown == ["<Device npu: float32 1 TFLOP/s, bfloat16 4 TFLOP/s; memory 80 GiB, 1 TB/s>"]


def test_the_error_of_a_step_is_that_of_its_own_kind() -> None:
    kinds = [RunKind(experts, fp8) for experts in (False, True) for fp8 in (False, True)]
    errors = tuple(StepError(kind, 0.1 * i, "npu", 1, 1, 1) for i, kind in enumerate(kinds[:3]))
    assert [replace(DEVICE, step_errors=errors).step_error(kind) for kind in kinds] == [*errors, None]


@pytest.mark.parametrize(("n", "expected"), [(2, 0.5641895835), (3, 0.8462843753), (1000, 3.2414357769)])
def test_the_largest_of_normal_draws_is_as_far_above_a_single_one_as_its_integral_says(n: int, expected: float) -> None:
    """Two and three draws have closed forms, 1 / sqrt(pi) and 1.5 / sqrt(pi); a thousand are in Harter (1961)."""
    assert expected_largest(n) - expected_largest(1) == pytest.approx(expected, abs=2e-6)


def tiles_of(rows: int, columns: int, narrow: float) -> list[tuple[int, int]]:
    short, long = min(rows, columns), max(rows, columns)
    cut = [(short, long // 2), (short, long // 4), (short // 2, long // 2), (short // 2, long // 4)]
    return [(rows, columns), *([(columns, rows), *cut] if narrow and all(min(each) for each in cut) else [])]


@pytest.mark.parametrize(("m", "n", "batch"), [(500, 48, 3), (48, 500, 3), (1000, 700, 1), (65, 33, 5), (1, 2000, 2)])
@pytest.mark.parametrize("tile", [(64, 128), (128, 64), (32, 32), (2, 4)])
@pytest.mark.parametrize(("narrow", "last_wave", "prologue_s"), [(0.0, 1.0, 0.0), (0.7, 0.25, 3e-6), (0.3, 0.0, 1e-7)])
def test_a_product_takes_the_tile_in_which_its_waves_are_soonest_done(
    m: int, n: int, batch: int, tile: tuple[int, int], narrow: float, last_wave: float, prologue_s: float
) -> None:
    cores, k, clock, share, unhidden, moved = 6, 320, 0.8, 0.5, 0.25, 10**4
    more = {"cores": cores, "tile": tile, "narrow": narrow, "last_wave": last_wave, "prologue_s": prologue_s}
    device = replace(DEVICE, unhidden_share=unhidden, clock=clock, launch_overhead_s=2e-6, **more)
    largest, found = tile[0] * tile[1], []
    for rows, columns in tiles_of(*tile, narrow):
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        waves = tiles / cores + last_wave * (ceil(tiles / cores) - tiles / cores)
        main_s = 2 * rows * columns * k / (4e12 * clock * share / cores)
        reuse = rows * columns / (rows + columns) * sum(tile) / largest
        found.append(waves * (main_s / reuse**narrow + prologue_s * rows * columns / largest))
    took = device.seconds(events_of([MeasuredKernel(Kernel.PRODUCT, "bfloat16", 1.0, batch, m, n, k, moved)]), AS_RAN)
    bytes_s = moved / (0.25 * 1e12)
    assert took == pytest.approx([max(min(found) + unhidden * bytes_s, bytes_s) + 2e-6], rel=1e-12)


@pytest.mark.parametrize("tile", [(1, 4), (4, 1), (2, 3), (3, 2), (1, 1)])
def test_a_tile_that_cannot_be_cut_is_turned_alone(tile: tuple[int, int]) -> None:
    """A product as wide as the tile is high takes the turned tile, in one wave; it has no smaller one."""
    device = replace(DEVICE, cores=1, tile=tile, narrow=0.5, unhidden_share=0)
    rows = [MeasuredKernel(Kernel.PRODUCT, "float32", 1.0, 1, *sides, 10, 1) for sides in (tile, tile[::-1])]
    whole = 2 * tile[0] * tile[1] * 10 / (1e12 * 0.5)
    assert device.seconds(events_of(rows), AS_RAN) == pytest.approx([whole, whole], rel=1e-12)


UNEVEN = {32: {512: 0.1, 2048: 0.2, 4096: 0.6}, 96: {1024: 0.3}, 256: {256: 0.35, 8192: 0.9}}  # head, length, share


def by_hand(of: dict[int, dict[int, float]], head: int, length: int) -> float:
    """Interpolate in the logarithms, first of the length for each head size, then of the head size."""

    def between(points: list[tuple[float, float]], at: float) -> float:
        for (low, left), (high, right) in pairwise(points):
            if low <= at <= high:
                return left + (right - left) * (at - low) / (high - low)
        return points[0][1] if at < points[0][0] else points[-1][1]

    of_heads = {size: between([(log2(x), y) for x, y in sorted(row.items())], log2(length)) for size, row in of.items()}
    return between([(log2(size), share) for size, share in sorted(of_heads.items())], log2(head))


def attentions(kernel: Kernel, sizes: list[tuple[int, int]]) -> Any:
    return events_of([MeasuredKernel(kernel, "bfloat16", 1.0, 2, 7, length, head) for head, length in sizes])


@pytest.mark.parametrize("order", [1, -1])
def test_a_rate_of_attention_lies_between_those_of_the_nearest_lengths_and_head_sizes(order: int) -> None:
    rows = [AttentionRate("fa2", 2, head, False, False, n, of) for head, row in UNEVEN.items() for n, of in row.items()]
    beside_it = [rows[0]._replace(share=0.77, **other) for other in ({"item_bytes": 1}, {"kernel": "fa3"})]
    sizes = [(head, length) for head in (1, 32, 64, 96, 100, 256, 999) for length in (1, 256, 1000, 3000, 8192, 10**6)]
    found = attention_shares((*rows[::order], *beside_it), "fa2", attentions(Kernel.ATTENTION, sizes), 2)
    assert found == pytest.approx([by_hand(UNEVEN, *each) for each in sizes], rel=1e-12)


TABLES = {(False, False): 0.6, (True, False): 0.3, (False, True): 0.5, (True, True): 0.2}  # by mask and pass


@pytest.mark.parametrize("known", [tuple(key for i, key in enumerate(TABLES) if 1 << i & bits) for bits in range(16)])
def test_a_mask_or_a_pass_without_a_rate_takes_that_of_what_is_like_it(known: tuple[tuple[bool, bool], ...]) -> None:
    """A masked backward loses what the masked forward loses; where that is not known, a mask is as good as none."""
    rows = tuple(AttentionRate("fa2", 2, 64, *key, 1024, TABLES[key]) for key in known)
    for kernel in ATTENTIONS:
        key = kernel in MASKED, kernel in BACKWARD
        expected = TABLES[key] if key in known else TABLES.get((False, key[1]), 0) if (False, key[1]) in known else 0
        if key == (True, True) and set(known) == set(TABLES) - {key}:
            expected = 0.5 * 0.3 / 0.6
        assert attention_shares(rows, "fa2", attentions(kernel, [(64, 1024)]), 2).tolist() == pytest.approx([expected])


def test_only_what_is_asked_for_and_not_yet_waited_for_of_collectives_that_add_lies_beside(words: Any) -> None:
    names = ("all_gather", "all_reduce", "broadcast", "reduce_scatter", "reduce", "all_to_all")
    for name in names:
        rows = [words.compute(), words.collective(8, name), words.compute(), words.mark([1]), words.mark([1]), words.compute()]
        adds = name in ("all_reduce", "reduce_scatter", "reduce")
        assert beside(words.events(*rows)).tolist() == [False, False, adds, False, False, False]
    two = [words.collective(8), words.collective(8), words.compute(waits=[0]), words.compute(), words.mark([0, 1])]
    assert beside(words.events(*two)).tolist() == [False, True, True, True, False]
    assert beside(words.events(words.collective(8), words.compute())).tolist() == [False, True]
    assert beside(words.events(words.compute())).tolist() == [False]


def test_measured_kernels_are_events_with_the_work_that_their_sizes_have() -> None:
    sizes = 2, 3, 5, 7
    flops = {Kernel.PRODUCT: 2, **dict.fromkeys(ATTENTIONS, 4), **dict.fromkeys(BACKWARD, 10)}
    rows = [MeasuredKernel(kernel, "bfloat16", 1.0, *sizes, bytes=30 * (kernel != Kernel.PRODUCT)) for kernel in Kernel]
    more = [MeasuredKernel(Kernel.PRODUCT, dtype, 1.0, *sizes) for dtype in ("tf32", "float8_e4m3fn")]
    events, moved = events_of([*rows, *more]), 2 * (3 * 7 + 7 * 5 + 3 * 5)
    assert events.flops.tolist() == [flops.get(kernel, 0) * 210.0 for kernel in Kernel] + [420.0] * 2
    assert events.bytes.tolist() == [2 * moved if kernel == Kernel.PRODUCT else 30 for kernel in Kernel] + [4 * moved, moved]
    assert events.count.tolist() == [moved if kernel == Kernel.PRODUCT else 15 for kernel in Kernel] + [0, moved]
    assert events.kernel.tolist() == [*Kernel, Kernel.PRODUCT, Kernel.PRODUCT]
    for name, value in {"batch": 2, "m": 3, "n": 5, "k": 7, "kind": Kind.COMPUTE, "step": 1, "group": -1, "stream": 0}.items():
        assert set(getattr(events, name).tolist()) == {value}, name
    assert len(events_of([])) == 0


def test_measured_kernels_weigh_by_the_inverse_square_of_their_distance_in_logarithms() -> None:
    sizes = [(1, 64, 64, 64), (2, 128, 64, 32), (4, 64, 512, 64)]
    rows = tuple(MeasuredKernel(Kernel.PRODUCT, "float32", 1e-3 * 5**i, *each) for i, each in enumerate(sizes))
    asked = MeasuredKernel(Kernel.PRODUCT, "float32", 1.0, 3, 100, 80, 48)
    (model, *of_rows) = DEVICE.seconds(events_of([asked, *rows]), AS_RAN).tolist()
    square = [sum(np.log(a / b) ** 2 for a, b in zip(each, asked[3:7], strict=True)) for each in sizes]
    weights = [1 / each for each in square]
    ratios = [np.log(row.seconds / of) for row, of in zip(rows, of_rows, strict=True)]
    factor = np.exp(sum(w * r for w, r in zip(weights, ratios, strict=True)) / sum(weights))
    assert replace(DEVICE, measured=rows).seconds(events_of([asked]), AS_RAN) == pytest.approx([model * factor], rel=1e-9)


def test_the_basis_of_a_time_is_a_measured_shape_or_one_near_or_the_model(words: Any) -> None:
    rows = [
        MeasuredKernel(Kernel.PRODUCT, "bfloat16", 1.0, 1, 8, 9, 10),
        MeasuredKernel(Kernel.OTHER, "bfloat16", 1.0, bytes=64, name="mul"),
        MeasuredKernel(Kernel.OTHER, "bfloat16", 1.0, bytes=32),
        MeasuredKernel(Kernel.OTHER, "int64", 1.0, bytes=16, name="add"),
    ]
    others = [rows[0]._replace(k=11), rows[1]._replace(bytes=32), rows[2]._replace(name="neg"), rows[3]._replace(name="sub"),
              MeasuredKernel(Kernel.SCATTER_ADD, "bfloat16", 1.0, 1, 2, 3, 1)]  # fmt: skip
    same, near, model = Basis.MEASURED, Basis.NEAR, Basis.MODEL
    found = bases(rows, events_of([*rows, *others]), AS_RAN, "npu")
    assert found.tolist() == [same, same, same, same, near, near, same, model, model]
    unknown = words.events(words.compute(kernel=Kernel.PRODUCT, dtype="bfloat16"), words.collective(8, dtype="bfloat16"))
    assert bases(rows, unknown, AS_RAN, "npu").tolist() == [model, model]  # a product whose sizes nobody knows


def test_an_operator_timed_in_another_dtype_is_looked_up_by_the_bytes_that_it_has_there() -> None:
    mebi, took = 1 << 20, {1: 3e-6, 2: 6e-6, 4: 80e-6}
    rows = tuple(MeasuredKernel(Kernel.OTHER, "bfloat16", s, bytes=n * mebi, name="mul") for n, s in took.items())
    single = events_of([MeasuredKernel(Kernel.OTHER, "float32", 1.0, bytes=4 * mebi, name="mul")])
    assert replace(DEVICE, measured=rows).seconds(single, "bfloat16") == pytest.approx([6e-6])
    assert bases(rows, single, "bfloat16", "npu").tolist() == [Basis.MEASURED]
    half = events_of([MeasuredKernel(Kernel.OTHER, "float32", 1.0, bytes=mebi, name="mul")])  # half a MiB in bfloat16
    assert bases(rows, half, "bfloat16", "npu").tolist() == [Basis.NEAR]


def test_a_kernel_of_unknown_work_lasts_as_measured_where_the_device_keeps_it(words: Any) -> None:
    rows = [words.compute(bytes=10**9, dtype=dtype) for dtype in ("", "float32", "")]
    events = replace(words.events(*rows, words.collective(8, dtype="")), lasts_s=np.array([0.5, 0.25, 0.125, 9.0]))
    assert replace(DEVICE, keeps_unknown=True).seconds(events, AS_RAN).tolist() == [0.5, 4e-3, 0.125, 0]
    assert DEVICE.seconds(events, AS_RAN).tolist() == [4e-3, 4e-3, 4e-3, 0]
    assert replace(DEVICE, as_measured=True).seconds(events, AS_RAN).tolist() == [0.5, 0.25, 0.125, 0]
    without = replace(events, lasts_s=np.zeros(0))
    assert replace(DEVICE, keeps_unknown=True).seconds(without, AS_RAN).tolist() == [4e-3, 4e-3, 4e-3, 0]


@pytest.mark.parametrize("contended", [None, False, True])
def test_whoever_asks_may_say_that_a_collective_is_beside_all_products(words: Any, contended: bool | None) -> None:
    product = words.compute(1, kernel=Kernel.PRODUCT)
    events = words.events(product, words.collective(8), product, words.compute(1), words.mark([1]), product)
    slowed = {None: (1, 1 / 0.75, 1, 1), False: (1, 1, 1, 1), True: (1 / 0.75, 1 / 0.75, 1, 1 / 0.75)}[contended]
    took = replace(DEVICE, contention=0.25).seconds(events, "float32", contended=contended)[[0, 2, 3, 5]]
    assert took == pytest.approx([2e-3 * each for each in slowed], rel=1e-12)
