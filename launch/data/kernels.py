"""Kernels that others measured, as published: launch/data/kernels/*.csv, each row with its source.

`use` says what a row is for: `used` rows give what the devices have, `predicted` ones are only compared with it.
"""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from emu.dtypes import item_bytes
from emu.trace.device.attention import AttentionRate, AttentionTable

KERNELS = Path(__file__).with_name("kernels")
BOTH = "both"  # a rate of forward and backward together
USED = "used"
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
    return tuple(_attention(row) for row in rows_of("attention.csv"))


def _attention(row: Mapping[str, str]) -> PublishedAttention:
    given: dict[str, Any] = {name: row[name] for name in ("device", "kernel", "dtype", "mask", "direction", "use", "source")}
    return PublishedAttention(**given, head=int(row["head"]), length=int(row["length"]), rate=float(row["tflops"]) * 1e12)


def rows_of(name: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a file by the names of its columns."""
    with (KERNELS / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def attention_of(device: str, peak_flops: Mapping[str, float]) -> AttentionTable:
    """Return the rates of a device by the figures that are used; a rate of both passes stands for each of them."""
    rows = [row for row in published_attention() if (row.device, row.use) == (device, USED)]
    return AttentionTable(tuple(rate for row in rows for rate in _rates(row, peak_flops[row.dtype])))


def _rates(row: PublishedAttention, peak: float) -> Iterator[AttentionRate]:
    for direction in _PASSES if row.direction == BOTH else (row.direction,):
        backward = direction == "backward"
        yield AttentionRate(
            row.kernel, item_bytes(row.dtype), row.head, row.mask == "causal", backward, row.length, row.rate / peak
        )
