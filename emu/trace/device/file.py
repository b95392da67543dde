"""Devices as TOML files: a user's own file is read, and a calibrated device is written.

Required are a bandwidth of memory and a table of peaks, FLOP/s by torch's name of the dtype, and `tf32` of float32 by tensor
cores; the rest is as `Device` has it:

    memory_bandwidth = "3.35TB/s"
    memory = "80GB"
    cores = 132
    gemm_share = 0.75
    launch_overhead = "2us"
    peak_flops = { bfloat16 = 989e12, float32 = 67e12, tf32 = 494.7e12 }
    kernels = [
      { kernel = "product", dtype = "bfloat16", m = 4096, n = 4096, k = 4096, seconds = 215e-6 },
      { kernel = "other", name = "mul", dtype = "bfloat16", bytes = 402653184, seconds = 140e-6 },
    ]

A kernel is of a kind of `emu.trace.kernel_shape.Kernel`, its sizes are those of an event, and its time is that of one call.
A file may also have a table of attention rates.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from emu.errors import InputError, at_place, must_be
from emu.files import write_file
from emu.registry import unknown
from emu.topology.description.values import check_keys, load_toml, located, read_count
from emu.trace.device.attention_rate import KERNELS, AttentionRate
from emu.trace.device.device import BARE, SCALES, Device
from emu.trace.device.measured import MeasuredKernel
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import FLOAT_BYTES, TF32
from emu.units import parse_bandwidth, parse_size, parse_time, seconds

_SIZES = ("batch", "m", "n", "k", "bytes")  # of a kernel; the first is 1 and the others are 0 where they are left out
_KIND = {kind.name.lower().replace("_", "-"): kind for kind in Kernel}
_PASSES = ("forward", "backward")
_MASKS = ("none", "causal")
_OF_KERNEL = ("kernel", "dtype", "seconds")
_OF_RATE = ("kernel", "head", "mask", "pass", "length", "share")


def read_kernels(value: object, key: str, where: str) -> tuple[MeasuredKernel, ...]:
    """Return the kernels of a list of tables.

    Raises:
        InputError: no such list, an unknown key, kind or dtype (with the nearest), a row without a shape, or a time of 0.
    """
    rows = _rows(value, key, where, _OF_KERNEL, (*_SIZES, "name"))
    return tuple(_kernel(row, at) for at, row in rows)


def read_rates(value: object, key: str, where: str) -> tuple[AttentionRate, ...]:
    """Return the rates of attention of a list of tables.

    Raises:
        InputError: no such list, an unknown key, kernel, mask or pass (with the nearest), or a share that cannot be.
    """
    return tuple(_rate(row, at) for at, row in _rows(value, key, where, _OF_RATE, ("item_bytes",)))


def _kernel_written(of: MeasuredKernel) -> str:
    kind = next(word for word, kind in _KIND.items() if kind == of.kernel)
    sizes = [f"{name} = {getattr(of, name)}" for name in _SIZES if getattr(of, name)]
    words = [f'kernel = "{kind}"', *([f'name = "{of.name}"'] if of.name else []), f'dtype = "{of.dtype}"']
    return ", ".join([*words, *sizes, f"seconds = {of.seconds!r}"])


def _rate_written(of: AttentionRate) -> str:
    words = [f'kernel = "{of.kernel}"', f"item_bytes = {of.item_bytes}", f"head = {of.head}", f'mask = "{_MASKS[of.causal]}"']
    return ", ".join([*words, f'pass = "{_PASSES[of.backward]}"', f"length = {of.length}", f"share = {of.share!r}"])


def _rows(value: object, key: str, where: str, needed: tuple[str, ...], more: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a list of tables of a device file, each with a text for messages that says where it is."""
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


_PEAKS, _BANDWIDTH = "peak_flops", "memory_bandwidth"
_SHARES = "gemm_share", "attention_efficiency", "unhidden_share", "spread", "hbm_efficiency", "contention"
SHARES = ("clock", *_SHARES, "last_wave", "narrow")
_KERNELS, _ATTENTION, _NARROW, _ADDS = "kernels", "attention", "fp8_share", "atomic_adds_per_s"
_FLOATS = (*FLOAT_BYTES, TF32)
_WORDS = ("name", "source", "fitted_on", "assumed")


def read_device(path: Path) -> Device:
    """Return the device that a TOML file describes; its name defaults to the file's name.

    Raises:
        InputError: There is no such file, it is no TOML, a key is unknown or missing, or a value is impossible.
    """
    where = str(path)
    given = load_toml(path, "device", where)
    check_keys(given, _READ, where)
    missing = [key for key in (_PEAKS, _BANDWIDTH) if key not in given]
    if missing:
        mend = f'write {_BANDWIDTH} = "3.35TB/s" and {_PEAKS} = {{ bfloat16 = 989e12 }}'
        raise InputError(f"{where}: keys missing: {', '.join(missing)}; {mend}")
    values = {_FIELDS.get(key, key): _READ[key](value, key, where) for key, value in given.items()}
    with located(where):
        return Device(**{"name": path.stem, **values})


def write_device(device: Device, path: Path) -> None:
    """Write the file that `read_device` reads.

    Raises:
        WriteError: it cannot be written.
    """
    lines = [f'{key} = "{getattr(device, key)}"' for key in _WORDS if getattr(device, key)]
    lines += [f'{_BANDWIDTH} = "{device.hbm_Bps / 1e9:.6g}GB/s"', f'launch_overhead = "{device.launch_overhead_s * 1e6:.4g}us"']
    lines += [f'memory = "{device.memory_bytes}B"'] * bool(device.memory_bytes)
    lines += [f"cores = {device.cores}", f"tile = [{device.tile[0]}, {device.tile[1]}]"] * bool(device.cores)
    lines += [f"capability = {[*device.capability]}"] * (device.capability != BARE)
    lines += [f'prologue = "{device.prologue_s * 1e6:.4g}us"'] * (device.prologue_s > 0)
    lines += [f"{key} = {getattr(device, key):.4g}" for key in SHARES]
    lines += [f"{_ADDS} = {device.atomic_adds_per_s:.6g}"] * (device.atomic_adds_per_s > 0)
    lines += _table(_KERNELS, [_kernel_written(each) for each in device.measured])
    lines += _table(_ATTENTION, [_rate_written(each) for each in device.attention])
    narrow = ", ".join(f"{scale} = {share:.4g}" for scale, share in device.fp8_share.items())
    lines += [f"{_NARROW} = {{ {narrow} }}"] * bool(narrow)
    lines += ["", f"[{_PEAKS}]", *(f"{dtype} = {peak:.6g}" for dtype, peak in device.peak_flops.items())]
    write_file("--out", path, ("\n".join(lines) + "\n").encode())


def _peaks(value: object, key: str, where: str) -> Mapping[str, float]:
    if not isinstance(value, dict) or not value:
        raise must_be(where, key, "a table of FLOP/s by dtype, such as { bfloat16 = 989e12 }", value)
    for dtype in value:
        if dtype not in _FLOATS:
            raise InputError(f"{where}: {key}: {unknown('dtype', dtype, _FLOATS)}")
    return {dtype: _number(peak, f"{key} of {dtype}", where) for dtype, peak in value.items()}


def _narrow(value: object, key: str, where: str) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise must_be(where, key, "a table of shares of the peak of FP8, such as { tensor = 0.75 }", value)
    check_keys(value, SCALES, f"{where}: {key}")
    return {scale: _number(share, f"{key} of {scale}", where) for scale, share in value.items()}


def _table(name: str, rows: list[str]) -> list[str]:
    return [f"{name} = [", *(f"  {{ {row} }}," for row in rows), "]"] if rows else []


def _number(value: object, key: str, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise must_be(where, key, "a number", value)
    return float(value)


def _word(value: object, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise must_be(where, key, "text in quotes", value)
    return value


def _tile(value: object, key: str, where: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise must_be(where, key, "rows and columns, such as [128, 256]", value)
    return read_count(value[0], key, where), read_count(value[1], key, where)


def _capability(value: object, key: str, where: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(each) is int and each >= 0 for each in value):
        raise must_be(where, key, "CUDA's major and minor number, such as [9, 0]", value)
    return value[0], value[1]


def _quantity(parse: Callable[[str, str], float], example: str) -> Callable[[object, str, str], float]:
    """Return a function that reads a value with a unit from a device file, such as a bandwidth."""

    def read(value: object, key: str, where: str) -> float:
        if not isinstance(value, str):
            raise must_be(where, key, f"text in quotes with its unit, such as '{example}'", value)
        try:
            return parse(value, key)
        except InputError as error:
            raise at_place(where, error) from None

    return read


_FIELDS = {  # of a device, where they have other names than the keys of a file
    _BANDWIDTH: "hbm_Bps",
    "memory": "memory_bytes",
    _KERNELS: "measured",
    "prologue": "prologue_s",
    "launch_overhead": "launch_overhead_s",
}
_DURATION = _quantity(lambda word, key: seconds(parse_time(word, key)), "2us")
_READ: Mapping[str, Callable[[Any, str, str], Any]] = {
    **dict.fromkeys(_WORDS, _word),
    _PEAKS: _peaks,
    _BANDWIDTH: _quantity(parse_bandwidth, "3.35TB/s"),
    "memory": _quantity(parse_size, "80GB"),
    "cores": read_count,
    "tile": _tile,
    "capability": _capability,
    _KERNELS: read_kernels,
    _ATTENTION: read_rates,
    _NARROW: _narrow,
    **dict.fromkeys((*SHARES, _ADDS), _number),
    **dict.fromkeys(("prologue", "launch_overhead"), _DURATION),
}
