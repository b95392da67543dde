"""Published figures of kernels beside what the model of a device says of them, with nothing of a training run.

A device has the clock of the machine that was measured: for products that clock is fitted on the products of the machine that
are used; attention and what moves bytes have none, as their rates are those of the kernel by itself. A figure that gave a row
of the table of attention is predicted from the other rows of that table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from emu.dtypes import item_bytes
from emu.model.operator import FORWARD, RowSum
from emu.trace.device.measured import MeasuredKernel, events_of
from emu.trace.trace import AS_RAN, Kernel
from launch.data.devices import DEVICES
from launch.data.kernels import (
    BOTH,
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
from launch.papers.kernels.fit import HBM, bare, clocks_of, ratios_of, used_products

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
    """One published figure."""

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
    """The figures of one kind and use; errors are |ratio - 1|."""

    kind: str
    use: str
    rows: int
    mean_error: float
    worst_error: float
    worst: str


def rows() -> list[KernelComparison]:
    """Return every published figure beside ours."""
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
    """FLOP/s by the table without the row itself; 0 where no other row tells."""
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
    """Return a published figure beside ours."""
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
