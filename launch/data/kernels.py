"""Kernels that others measured, as published: launch/data/kernels/*.csv, each row with its source; and what they gave.

`use` says what a row is for: `used` rows give what the devices have, `predicted` ones are only compared with it.
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
    """One figure of a kernel of attention."""

    device: str
    kernel: str
    dtype: str
    head: int
    mask: str
    direction: str
    length: int
    rate: float  # FLOP/s, of a causal mask half of the FLOPs counted
    use: str
    source: str


@cache
def published_attention() -> tuple[PublishedAttention, ...]:
    """Return every figure of attention, in the order of the file."""
    return tuple(
        _figure(PublishedAttention, row, rate=float(row["tflops"]) * 1e12) for row in rows_of(KERNELS / "attention.csv")
    )


def _figure(kind: Any, row: Mapping[str, str], **measured: float) -> Any:
    """Return a row of a file as a figure of a kind, whose fields are texts or whole numbers, but for what was measured."""
    read = {name: int(row[name]) if field is int else row[name] for name, field in kind.__annotations__.items() if name in row}
    return kind(**read, **measured)


def attention_of(device: str, peak_flops: Mapping[str, float]) -> tuple[AttentionRate, ...]:
    """Return the rates of a device by the figures that are used; a rate of both passes stands for each of them."""
    rows = [row for row in published_attention() if (row.device, row.use) == (device, USED)]
    return tuple(rate for row in rows for rate in rates_of(row, peak_flops[row.dtype]))


def rates_of(row: PublishedAttention, peak: float) -> Iterator[AttentionRate]:
    """Yield the rows of a table that a figure gives."""
    for direction in _PASSES if row.direction == BOTH else (row.direction,):
        backward = direction == "backward"
        yield AttentionRate(
            row.kernel, item_bytes(row.dtype), row.head, row.mask == "causal", backward, row.length, row.rate / peak
        )


class PublishedProduct(NamedTuple):
    """One figure of a product, or of a grouped one."""

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
        """The facts that share one clock: a kernel on a machine, by the width of its elements."""
        return self.machine, self.kernel, self.dtype

    @property
    def seconds(self) -> float:
        """The seconds that it took."""
        return 2.0 * self.batch * self.m * self.n * self.k / self.rate


class PublishedMove(NamedTuple):
    """One figure of a kernel that moves bytes."""

    device: str
    kernel: str
    what: str
    direction: str
    rate: float  # B/s, read and written
    use: str
    source: str


class PublishedSum(NamedTuple):
    """One figure of kernels of which the last adds rows, by atomic operations, to those of the tokens that they belong to."""

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
        """The elements added a second."""
        return self.rows * self.elements / self.seconds


@cache
def published_sums() -> tuple[PublishedSum, ...]:
    """Return every figure of a sum of rows, in the order of the file."""
    return tuple(_figure(PublishedSum, row, seconds=float(row["us"]) / 1e6) for row in rows_of(KERNELS / "sums.csv"))


@cache
def published_products() -> tuple[PublishedProduct, ...]:
    """Return every figure of a product, in the order of the file."""
    return tuple(_figure(PublishedProduct, row, rate=float(row["tflops"]) * 1e12) for row in rows_of(KERNELS / "products.csv"))


@cache
def published_moves() -> tuple[PublishedMove, ...]:
    """Return every figure of a kernel that moves bytes, in the order of the file."""
    return tuple(_figure(PublishedMove, row, rate=float(row["GBps"]) * 1e9) for row in rows_of(KERNELS / "moves.csv"))


def kernel_constants(device: str) -> dict[str, Any]:
    """Return the fields of a device that published products and sums of rows gave; none of a device that has no figure."""
    found, own = json.loads(FITTED.read_text(encoding="utf-8")), KERNELS_OF.get(device, device)
    if own not in found["gemm_share"]:
        return {}
    others = {name: found[name].get(own, none) for name, none in (("fp8_share", {}), ("atomic_adds_per_s", 0.0))}
    return {**found["products"], "gemm_share": found["gemm_share"][own], **others}
