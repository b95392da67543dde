"""Published measurements of kernels compared with the device model, without any data of training runs.

A device has the clock of the machine that was measured: for products that clock is fitted on the products of the machine that
are used; attention and kernels that move bytes have none, as their rates are those of the kernel by itself. A figure that gave
a row of the table of attention is predicted from the other rows of that table.

The fit of published products and sums of rows gives the constants of their models, and the shares and rates of a device. The
model of products is fitted by least squares of log(ours / published), where one that is far off counts less. R products.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from emu.arrays import F64
from emu.dtypes import item_bytes
from emu.model.operator import FORWARD, RowSum
from emu.trace.device.device import Device
from emu.trace.device.measured import MeasuredKernel, events_of
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import AS_RAN
from launch.data.devices import DEVICES
from launch.data.kernels import (
    BOTH,
    KERNELS_OF,
    USED,
    PublishedAttention,
    PublishedMove,
    PublishedProduct,
    PublishedSum,
    attention_of,
    kernel_constants,
    published_attention,
    published_moves,
    published_products,
    published_sums,
    rates_of,
)

COMMAND = "emu repro kernels --fit FILE.json"
_NAMES = ("last_wave", "prologue_s", "unhidden_share", "narrow")
_START, _HIGH = (0.5, 2e-6, 0.2, 0.8), (1.0, 2e-5, 1.0, 2.0)
_MOST = {"a100-80g": 1.0}  # of its clock that a device reaches: an A100's peak is stated at its highest clock
_BOOST = 1.98 / 1.83  # of a Hopper's, whose peak is stated at less than that: NVIDIA, H100 Tensor Core GPU Architecture (2022)
# Machines whose products in FP8 were of zeros and those in bfloat16 of random numbers, which take more power: pytorch/ao at
# eab345c, benchmarks/float8/bench_matmul.py, the script of float8_experimental's pull request 100.
_OF_ZEROS = ("float8-2023",)
_FAR = 0.05  # an error from which on a product counts less


Clocks = dict[tuple[str, str, str], float]  # by a group of products that have one clock


def groups_of(products: Sequence[PublishedProduct]) -> list[tuple[str, str, str]]:
    """Return the groups of products that share one clock: machine, kernel and dtype."""
    return [*dict.fromkeys(product.of for product in products)]


def ratios_of(products: Sequence[PublishedProduct], constants: Mapping[str, float], clocks: Clocks) -> F64:
    """Return [R] the ratio of our seconds to the published ones, by devices with clocks of 1."""
    found = np.empty(len(products))
    for group in groups_of(products):
        rows = [i for i, product in enumerate(products) if product.of == group]
        given: dict[str, Any] = {**constants, "clock": clocks[group]}
        device = replace(bare(products[rows[0]].device), **given)
        events = events_of([kernel_of(products[i]) for i in rows])
        found[rows] = device.seconds(events, AS_RAN) / [products[i].seconds for i in rows]
    return found


def clocks_of(products: Sequence[PublishedProduct], constants: Mapping[str, float]) -> Clocks:
    """Return the clock of each group with which the model fits its products best."""
    found = dict.fromkeys(groups_of(products), 0.8)
    for _ in range(12):
        ratios = ratios_of(products, constants, found)
        for group in found:
            own = [np.log(r) for r, product in zip(ratios, products, strict=True) if product.of == group]
            found[group] = min(most_of(group, products), found[group] * float(np.exp(fmean(own))))
    return found


def used_products() -> list[PublishedProduct]:
    """Return the products that give the constants."""
    return [product for product in published_products() if product.use == USED]


def fit() -> dict[str, Any]:
    """Fit the constants of kernels, and return them in the form that `kernel_constants` reads.

    These are the constants of products; and by device the share of peak that they reach, that of FP8, and the rate of sums.
    """
    used = used_products()

    def errors(values: F64) -> F64:
        constants = dict(zip(_NAMES, values * _START, strict=True))
        return np.log(ratios_of(used, constants, clocks_of(used, constants)))

    high = np.array(_HIGH) / _START
    best = least_squares(errors, np.ones(len(_NAMES)), bounds=(0, high), loss="soft_l1", f_scale=_FAR, diff_step=1e-2)
    constants = {name: float(f"{value:.4g}") for name, value in zip(_NAMES, best.x * _START, strict=True)}
    clocks = clocks_of(used, constants)
    shares = _shares(clocks, used)
    narrow = _narrow_shares(clocks, used, shares)
    return {
        "fitted_by": COMMAND,
        "products": constants,
        "gemm_share": shares,
        "fp8_share": narrow,
        "atomic_adds_per_s": _atomic_adds_per_s(),
    }


def _atomic_adds_per_s() -> dict[str, float]:
    """Return, by device, the mean number of elements per second that row sums add by atomic operations."""
    found: dict[str, list[float]] = {}
    for of in published_sums():
        if of.use == USED:
            before_s = of.beside_bytes / (HBM * DEVICES[of.device].hbm_Bps)
            found.setdefault(KERNELS_OF.get(of.device, of.device), []).append(of.rows * of.elements / (of.seconds - before_s))
    return {device: _mean(each) for device, each in found.items()}


def _mean(values: Sequence[float]) -> float:
    """Return the geometric mean with four digits."""
    return float(f"{np.exp(fmean(np.log(values))):.4g}")


def _shares(clocks: Clocks, products: Sequence[PublishedProduct]) -> dict[str, float]:
    """Return, by device, the share of peak that cuBLAS reaches in bfloat16 on machines with full power."""
    found: dict[str, list[float]] = {}
    for group, clock in clocks.items():
        first = next(product for product in products if product.of == group)
        if (first.power, first.kernel, first.dtype) == ("full", "cublas", "bfloat16"):
            found.setdefault(KERNELS_OF.get(first.device, first.device), []).append(clock)
    return {device: _mean(each) for device, each in found.items()}


# What one scale of FP8 is for, by the kernel of a product.
_SCALE = {"cublas": "tensor", "tensor-wise": "tensor", "row-wise": "row", "block-wise": "block", "deepgemm": "block"}


def _narrow_shares(
    clocks: Clocks, products: Sequence[PublishedProduct], shares: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return by device and scale the share of the peak of FP8 that products reach: that of bfloat16, times the ratio of clocks.

    A machine of full power without a product of cuBLAS in bfloat16 has the clock that all have. A clock as high as a device's
    can be tells nothing, nor does a product of zeros.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for group, clock in clocks.items():
        machine, kernel, dtype = group
        first = next(product for product in products if product.of == group)
        wide, device = clocks.get((machine, "cublas", "bfloat16")), KERNELS_OF.get(first.device, first.device)
        tells = machine not in _OF_ZEROS and clock < most_of(group, products) and (wide or first.power == "full")
        if dtype.startswith("float8") and tells:
            share = clock * shares[device] / wide if wide else clock
            found.setdefault((device, _SCALE[kernel]), []).append(share)
    means = {of: float(f"{min(1.0, np.exp(fmean(np.log(each)))):.4g}") for of, each in found.items()}
    return {device: {scale: mean for (of, scale), mean in means.items() if of == device} for device, _ in means}


def most_of(group: tuple[str, str, str], products: Sequence[PublishedProduct]) -> float:
    """Return the highest clock of the device of a group of products."""
    return _MOST.get(next(product.device for product in products if product.of == group), _BOOST)


def bare(device: str) -> Device:
    """Return a device whose products reach its whole peak, so that a clock frequency that is set later is all that slows them.

    Kernels reach the share `HBM` of the memory's bandwidth. Nothing is added for the spread between NPUs or for contention.
    """
    return replace(DEVICES[device], gemm_share=1.0, fp8_share={}, clock=1.0, spread=0.0, contention=0.0, hbm_efficiency=HBM)


HBM = 0.8  # of the memory's bandwidth, that kernels reach where it is not fitted on runs


def kernel_of(of: PublishedProduct) -> MeasuredKernel:
    """Return a published product in the form of a measured kernel."""
    moved = MeasuredKernel(Kernel.PRODUCT, of.dtype, of.seconds, of.batch, of.m, of.n, of.k)
    wide = 2 if of.dtype.startswith("float8") else 1  # what FP8 gives is of two bytes
    return moved._replace(bytes=moved.moved + (wide - 1) * of.batch * of.m * of.n)


PublishedFigure = PublishedAttention | PublishedProduct | PublishedMove | PublishedSum
ATTENTION, PRODUCT, GROUPED, EIGHTH = "attention", "product", "grouped product", "FP8 product"
MOVE, SUM = "copy or norm", "sum of rows"
_KERNEL = {
    ("none", "forward"): Kernel.ATTENTION,
    ("causal", "forward"): Kernel.CAUSAL,
    ("none", "backward"): Kernel.ATTENTION_BACKWARD,
    ("causal", "backward"): Kernel.CAUSAL_BACKWARD,
}
_TOKENS, _HIDDEN = 2**14, 2048  # that the papers of FlashAttention measure with


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """A published kernel measurement, and Emu's value for it; `ratio` is Emu's over the published one.

    `use` says whether constants were fitted to it or it was predicted.
    """

    kind: str
    device: str
    kernel: str
    what: str
    published: float  # FLOP/s; B/s of what moves bytes; elements a second of a sum of rows
    ours: float
    ratio: float  # ours to published
    use: str  # `used`: it gave what the device has; `predicted`
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSummary:
    """The errors |ratio - 1| of all measurements of one kind and use."""

    kind: str
    use: str
    rows: int
    mean_error: float
    worst_error: float
    worst: str


def rows() -> list[KernelComparison]:
    """Return every published figure with Emu's value for it."""
    return [*_attention(), *_products(), *_moves(), *_sums()]


def summaries(found: Sequence[KernelComparison]) -> Iterator[KernelSummary]:
    """Yield the errors of each kind and use."""
    for kind, use in dict.fromkeys((row.kind, row.use) for row in found):
        own = [row for row in found if (row.kind, row.use) == (kind, use)]
        worst = max(own, key=lambda row: abs(row.ratio - 1))
        yield KernelSummary(
            kind=kind,
            use=use,
            rows=len(own),
            mean_error=fmean(abs(row.ratio - 1) for row in own),
            worst_error=abs(worst.ratio - 1),
            worst=f"{worst.device} {worst.kernel} {worst.what}",
        )


def _attention() -> Iterator[KernelComparison]:
    for of in published_attention():
        ours = _attention_rate(of)
        what = f"{of.dtype} head {of.head}, mask {of.mask}, {of.direction}, {of.length} tokens"
        if ours:
            yield _comparison(of, ATTENTION, what, ours)


def _attention_rate(of: PublishedAttention) -> float:
    """Return the FLOP/s that a device's table predicts for a published kernel of attention, without the kernel's own rate.

    The result is 0 if no other rate of the table serves for this kernel.
    """
    peaks = DEVICES[of.device].peak_flops
    own = {*rates_of(of, peaks[of.dtype])} if of.use == USED else set()
    table = tuple(rate for rate in attention_of(of.device, peaks) if rate not in own)
    device = replace(bare(of.device), attention=table, attention_kernel=of.kernel, attention_efficiency=1e-6)
    passes = ("forward", "backward") if of.direction == BOTH else (of.direction,)
    batch = max(1, _TOKENS // of.length) * (_HIDDEN // of.head)
    kernels = [MeasuredKernel(_KERNEL[of.mask, each], of.dtype, 1.0, batch, of.length, of.length, of.head) for each in passes]
    counted = sum(kernel.flops for kernel in kernels) / (2 if of.mask == "causal" else 1)
    reached = counted / float(device.seconds(events_of(kernels), AS_RAN).sum())
    return reached if reached > 1e-4 * peaks[of.dtype] else 0.0


def _products() -> Iterator[KernelComparison]:
    every = published_products()
    own = ("gemm_share", "fp8_share", "atomic_adds_per_s")
    constants = {name: value for name, value in kernel_constants("h100").items() if name not in own}
    known = clocks_of(used_products(), constants)
    clocks = {of.of: known.get(of.of, DEVICES[of.device].gemm_share) for of in every}
    for of, ratio in zip(every, ratios_of(every, constants, clocks), strict=True):
        kind = EIGHTH if of.dtype.startswith("float8") else GROUPED if of.batch > 1 else PRODUCT
        what = f"{of.dtype} {of.batch} x [{of.m}, {of.k}] x [{of.k}, {of.n}] on {of.machine}"
        yield _comparison(of, kind, what, of.rate / float(ratio))


def _moves() -> Iterator[KernelComparison]:
    for of in published_moves():
        yield _comparison(of, MOVE, f"{of.what}, {of.direction}", HBM * DEVICES[of.device].hbm_Bps)


def _sums() -> Iterator[KernelComparison]:
    for of in published_sums():
        added = RowSum(FORWARD, of.rows, of.tokens, of.elements)
        moved = MeasuredKernel(Kernel.OTHER, of.dtype, 1.0, bytes=of.beside_bytes)
        adds = MeasuredKernel(
            Kernel.SCATTER_ADD, of.dtype, 1.0, *added.shape[1:], bytes=added.amount.bytes(item_bytes(of.dtype))
        )
        took_s = float(bare(of.device).seconds(events_of([moved, adds]), AS_RAN).sum())
        yield _comparison(of, SUM, f"{of.what}, {of.dtype}", of.rows * of.elements / took_s)


def _comparison(of: PublishedFigure, kind: str, what: str, ours: float) -> KernelComparison:
    """Return a published figure of a kernel beside Emu's value for it."""
    return KernelComparison(
        kind=kind,
        device=of.device,
        kernel=of.kernel,
        what=what,
        published=of.rate,
        ours=ours,
        ratio=ours / of.rate,
        use=of.use,
        source=of.source,
    )
