"""Rows of the tables that a device file may carry, in TOML: kernels that were measured, and rates of attention."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.description.values import check_keys, located, read_count
from emu.trace.device.attention import KERNELS, AttentionRate
from emu.trace.device.dtypes import FLOAT_BYTES, TF32
from emu.trace.device.measured import MeasuredKernel
from emu.trace.kernel import Kernel

_SIZES = ("batch", "m", "n", "k", "bytes")  # of a kernel; the first is 1 and the others are 0 where they are left out
_KIND = {kind.name.lower().replace("_", "-"): kind for kind in Kernel}
_OTHER = "other"
_PASSES = ("forward", "backward")
_MASKS = ("none", "causal")
_OF_KERNEL = ("kernel", "dtype", "seconds")
_OF_RATE = ("kernel", "head", "mask", "pass", "length", "share")


def read_kernels(value: object, key: str, where: str) -> tuple[str, tuple[MeasuredKernel, ...]]:
    """Return the field of a device, and the kernels of a list of tables.

    Raises:
        InputError: no such list, an unknown key, kind or dtype (with the nearest), a row without a shape, or a time of 0.
    """
    rows = _rows(value, key, where, _OF_KERNEL, (*_SIZES, "name"))
    return "measured", tuple(_kernel(row, at) for at, row in rows)


def read_rates(value: object, key: str, where: str) -> tuple[str, tuple[AttentionRate, ...]]:
    """Return the field of a device, and the rates of attention of a list of tables.

    Raises:
        InputError: no such list, an unknown key, kernel, mask or pass (with the nearest), or a share that cannot be.
    """
    return key, tuple(_rate(row, at) for at, row in _rows(value, key, where, _OF_RATE, ("item_bytes",)))


def kernels_written(of: Iterable[MeasuredKernel]) -> list[str]:
    """Return a line of TOML for each kernel, as `read_kernels` reads them."""
    return [_kernel_written(each) for each in of]


def rates_written(of: Iterable[AttentionRate]) -> list[str]:
    """Return a line of TOML for each rate, as `read_rates` reads them."""
    return [_rate_written(each) for each in of]


def _kernel_written(of: MeasuredKernel) -> str:
    kind = next(word for word, kind in _KIND.items() if kind == of.kernel)
    sizes = [f"{name} = {getattr(of, name)}" for name in _SIZES if getattr(of, name)]
    words = [f'kernel = "{kind}"', *([f'name = "{of.name}"'] if of.name else []), f'dtype = "{of.dtype}"']
    return ", ".join([*words, *sizes, f"seconds = {of.seconds!r}"])


def _rate_written(of: AttentionRate) -> str:
    words = [f'kernel = "{of.kernel}"', f"item_bytes = {of.item_bytes}", f"head = {of.head}", f'mask = "{_MASKS[of.causal]}"']
    return ", ".join([*words, f'pass = "{_PASSES[of.backward]}"', f"length = {of.length}", f"share = {of.share!r}"])


def _rows(value: object, key: str, where: str, needed: tuple[str, ...], more: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Where each row of a table stands, and the row."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise must_be(where, key, "a list of tables, such as [{ kernel = ... }]", value)
    for number, row in enumerate(value, 1):
        at = f"{where}: {key}, row {number}"
        check_keys(row, (*needed, *more), at)
        missing = [name for name in needed if name not in row]
        if missing:
            raise InputError(f"{at}: keys missing: {', '.join(missing)}")
        yield at, row


def _kernel(row: Mapping[str, Any], at: str) -> MeasuredKernel:
    with located(at):
        kind = _KIND[_known("kernel", row["kernel"], _KIND)]
        dtype = str(row["dtype"]) if kind == Kernel.OTHER else _known("dtype", row["dtype"], (*FLOAT_BYTES, TF32))
    sizes = {name: read_count(row[name], name, at) for name in _SIZES if name in row}
    missing = [name for name in (("bytes",) if kind == Kernel.OTHER else ("m", "n", "k")) if name not in sizes]
    if missing:
        raise InputError(f"{at}: keys missing: {', '.join(missing)}; the shape of a kernel says which one was measured")
    batch = sizes.pop("batch", 0 if kind == Kernel.OTHER else 1)
    took = _positive(row["seconds"], "seconds", at)
    return MeasuredKernel(kind, dtype, took, batch, **sizes, name=str(row.get("name", "")))


def _rate(row: Mapping[str, Any], at: str) -> AttentionRate:
    with located(at):
        kernel, mask, pass_ = (
            _known(key, row[key], of) for key, of in (("kernel", KERNELS), ("mask", _MASKS), ("pass", _PASSES))
        )
    head, length, width = (read_count(row.get(name, 2), name, at) for name in ("head", "length", "item_bytes"))
    share = _positive(row["share"], "share", at)
    return AttentionRate(kernel, width, head, mask == "causal", pass_ == "backward", length, share)


def _positive(value: object, key: str, at: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise must_be(at, key, "a number above 0", value)
    return float(value)


def _known(name: str, value: object, known: Iterable[str]) -> str:
    if value not in tuple(known):
        raise unknown(name, str(value), known)
    return str(value)
