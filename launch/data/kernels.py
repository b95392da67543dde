"""Published measurements of kernels, launch/data/kernels/*.csv, each row with its source, and the constants from them.

The column `use` says what a row is for: constants of devices follow from rows that are `used`; rows that are `predicted` are
only compared with them.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from emu.dtypes import item_bytes
from emu.trace.device.attention_rate import AttentionRate
from launch.data.fitted import rows_of

KERNELS = Path(__file__).with_name("kernels")
BOTH = "both"  # a rate of forward and backward together
USED = "used"
FITTED = KERNELS / "fitted.json"
KERNELS_OF = {"h800": "h100", "h200": "h100"}  # a device whose products are as fast as those of another
_PASSES = ("forward", "backward")


class PublishedAttention(NamedTuple):
    """A published rate, in FLOP/s, of an attention kernel of one shape on one device."""

    device: str
    kernel: str
    dtype: str
    head: int  # elements of a head
    mask: str
    direction: str
    length: int  # tokens of a sequence
    rate: float  # FLOP/s, of a causal mask half of the FLOPs counted
    use: str  # `used` for constants of devices, or `predicted`
    source: str


@cache
def published_attention() -> tuple[PublishedAttention, ...]:
    """Return all published rates of attention, in the order of the file."""
    return tuple(
        _figure(PublishedAttention, row, rate=float(row["tflops"]) * 1e12) for row in rows_of(KERNELS / "attention.csv")
    )


def _figure(kind: Any, row: Mapping[str, str], **measured: float) -> Any:
    """Return a row of a file as a tuple of a given class.

    Args:
        kind: The class; its fields are texts or whole numbers.
        row: The row.
        **measured: The values of the fields that were measured.
    """
    read = {name: int(row[name]) if field is int else row[name] for name, field in kind.__annotations__.items() if name in row}
    return kind(**read, **measured)


def attention_of(device: str, peak_flops: Mapping[str, float]) -> tuple[AttentionRate, ...]:
    """Return the rates of attention of a device from published rates that are used.

    A rate that was measured over the forward and the backward together stands for each of them.
    """
    rows = [row for row in published_attention() if (row.device, row.use) == (device, USED)]
    return tuple(rate for row in rows for rate in rates_of(row, peak_flops[row.dtype]))


def rates_of(row: PublishedAttention, peak: float) -> Iterator[AttentionRate]:
    """Yield the attention rates of one published row, one for each pass that the row covers."""
    for direction in _PASSES if row.direction == BOTH else (row.direction,):
        backward = direction == "backward"
        yield AttentionRate(
            row.kernel, item_bytes(row.dtype), row.head, row.mask == "causal", backward, row.length, row.rate / peak
        )


class PublishedProduct(NamedTuple):
    """One published rate (FLOP/s) of a matrix product, or of a grouped one, of sizes m, n and k on one device.

    `use` says whether constants were fitted to it.
    """

    device: str
    machine: str  # on which it was measured: its clock is its own
    power: str  # `full`, the watts of a machine that has less, or `not throttled`
    kernel: str
    dtype: str
    batch: int
    m: int
    n: int
    k: int
    rate: float  # FLOP/s
    use: str
    source: str

    @property
    def of(self) -> tuple[str, str, str]:
        """The key of products that share one clock: machine, kernel and dtype."""
        return self.machine, self.kernel, self.dtype

    @property
    def seconds(self) -> float:
        """The seconds that the product took."""
        return 2.0 * self.batch * self.m * self.n * self.k / self.rate


class PublishedMove(NamedTuple):
    """A published rate of a kernel that only moves bytes, such as a copy."""

    device: str
    kernel: str
    what: str
    direction: str
    rate: float  # B/s, read and written
    use: str
    source: str


class PublishedSum(NamedTuple):
    """A published time of several kernels, the last of which adds rows by atomic operations."""

    device: str
    kernel: str
    what: str
    dtype: str
    rows: int
    tokens: int
    elements: int  # of a row
    beside_bytes: int  # that the kernels before it read and write
    seconds: float  # that all took
    use: str
    source: str

    @property
    def rate(self) -> float:
        """The number of elements added per second."""
        return self.rows * self.elements / self.seconds


@cache
def published_sums() -> tuple[PublishedSum, ...]:
    """Return all published times of row sums, in the order of the file."""
    return tuple(_figure(PublishedSum, row, seconds=float(row["us"]) / 1e6) for row in rows_of(KERNELS / "sums.csv"))


@cache
def published_products() -> tuple[PublishedProduct, ...]:
    """Return all published rates of products, in the order of the file."""
    return tuple(_figure(PublishedProduct, row, rate=float(row["tflops"]) * 1e12) for row in rows_of(KERNELS / "products.csv"))


@cache
def published_moves() -> tuple[PublishedMove, ...]:
    """Return all published rates of kernels that move bytes, in the order of the file."""
    return tuple(_figure(PublishedMove, row, rate=float(row["GBps"]) * 1e9) for row in rows_of(KERNELS / "moves.csv"))


def kernel_constants(device: str) -> dict[str, Any]:
    """Return the fields of a device that were fitted to published kernels; empty if none were published for it."""
    found, own = json.loads(FITTED.read_text(encoding="utf-8")), KERNELS_OF.get(device, device)
    if own not in found["gemm_share"]:
        return {}
    others = {name: found[name].get(own, none) for name, none in (("fp8_share", {}), ("atomic_adds_per_s", 0.0))}
    return {**found["products"], "gemm_share": found["gemm_share"][own], **others}
