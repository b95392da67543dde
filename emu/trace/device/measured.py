"""Measured kernels of a device: a measured shape takes its measured time, other shapes a corrected model time.

The model's time of a kernel is multiplied by what measured kernels of the same kind and dtype took in relation to their
model's time. That ratio is interpolated in the logarithms of the sizes: each measured shape weighs by the inverse square of its
distance, so that a shape that was measured has just the ratio that was measured (Shepard, 1968).
E events of a role, R measured kernels, D sizes.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool
from emu.registry import unknown
from emu.trace.kernel_shape import ATTENTIONS, BACKWARD, Kernel
from emu.trace.timed_dtype import FLOAT_BYTES, TF32, timed_as, timed_bytes
from emu.trace.trace import Events, Kind, typed_events

_SAME = 1e-12  # limit of the square of the distance between equal places
_ADD = ("all_reduce", "reduce_scatter", "reduce")  # collectives whose ranks add


def beside(events: Events) -> Bool:
    """Return [E] whether each event lies between the request for a collective that adds and the wait for it.

    Collectives that only copy do not count, because they take few cores, or none.
    """
    n = len(events)
    asked = np.flatnonzero(events.kind == Kind.COLLECTIVE)
    asked = asked[[events.name[row] in _ADD for row in asked.tolist()]] if len(asked) else asked
    until = np.full(n + 1, n, np.int64)
    np.minimum.at(until, events.wait, np.repeat(np.arange(n), np.diff(events.wait_start)))
    begun, ended = np.bincount(asked + 1, minlength=n + 1), np.bincount(until[asked], minlength=n + 1)
    return np.asarray(np.cumsum(begun - ended)[:n] > 0)


_FLOPS = {
    Kernel.PRODUCT: 2,
    **dict.fromkeys(ATTENTIONS, 4),
    **dict.fromkeys(BACKWARD, 10),
    Kernel.OTHER: 0,
    Kernel.SCATTER_ADD: 0,
}


class MeasuredKernel(NamedTuple):
    """A kernel with its sizes, and the measured time of one call."""

    kernel: Kernel
    dtype: str  # as an event names it
    seconds: float  # with what launching it takes, as far as that was not hidden
    batch: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    bytes: int = 0  # that it read and wrote; 0: of a product what its three matrices have
    name: str = ""  # of a kernel that moves bytes, the operator as an event names it; "": any

    @property
    def flops(self) -> float:
        """The FLOPs of one call of the kernel."""
        return float(_FLOPS[self.kernel] * self.batch * self.m * self.n * self.k)

    @property
    def moved(self) -> int:
        """The bytes of memory that one call of the kernel reads and writes."""
        if self.bytes or self.kernel != Kernel.PRODUCT:
            return self.bytes
        width = FLOAT_BYTES["float32" if self.dtype == TF32 else self.dtype]
        return width * self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)


def events_of(rows: Sequence[MeasuredKernel]) -> Events:
    """Return the events of a role that runs each of these kernels once."""
    none, starts = np.zeros(len(rows), np.int64), np.zeros(len(rows) + 1, np.int64)
    names, dtypes = tuple(row.name for row in rows), tuple(row.dtype for row in rows)
    elements = [row.moved // FLOAT_BYTES[row.dtype] if row.dtype in FLOAT_BYTES else 0 for row in rows]
    amounts = [row.flops for row in rows], [row.moved for row in rows], elements
    sizes = ([row.kernel, row.batch, row.m, row.n, row.k] for row in rows)
    shapes = np.array([*sizes], np.int64).reshape(-1, 5).T
    own = none + 1, none + Kind.COMPUTE, none, names, dtypes
    no_request, no_waits_and_splits = (none - 1, none, none, none), (starts, (), starts, ())
    return typed_events([*own, *amounts, *shapes, *no_request, *no_waits_and_splits])


class Basis(IntEnum):
    """The source of a computation's time: a measured kernel, kernels near it, or a model of the device."""

    MODEL = 0  # the device's model alone
    NEAR = 1  # the model, corrected by what measured kernels of other sizes took
    MEASURED = 2  # a measured kernel of the very shape


def corrections(
    measured: Sequence[MeasuredKernel], events: Events, dtype: str, model_s: Callable[[Events], F64], whose: str
) -> F64:
    """Return [E] the factor on each computation's model time, from measured kernels; 1 if none is similar.

    Args:
        measured: On the device.
        events: As they ran.
        dtype: What float32 is timed as, or `AS_RAN`.
        model_s: The model's seconds of computations as they ran.
        whose: The device's name.

    Raises:
        InputError: a product of a dtype of which no product was measured, where products of others were.
    """
    ratios, found = np.log([row.seconds for row in measured]) - np.log(model_s(events_of(measured))), np.ones(len(events))
    for near in _similar_events(measured, events, dtype, whose):
        found[near.which] = _interpolated(near, ratios[near.rows])
    return found


def bases(measured: Sequence[MeasuredKernel], events: Events, dtype: str, whose: str) -> I64:
    """Return [E] the `Basis` of each computation's time; arguments and errors as in `corrections`."""
    found = np.full(len(events), int(Basis.MODEL))
    for near in _similar_events(measured, events, dtype, whose):
        met = near.met[near.back].any(axis=1)
        found[near.which] = np.where(met, int(Basis.MEASURED), int(Basis.NEAR))
    return found


def check_products(measured: Sequence[MeasuredKernel], dtype: str, whose: str) -> None:
    """Check that a product was measured in a dtype, if products of other dtypes were.

    Raises:
        InputError: the message names the nearest that was.
    """
    known = _dtypes(measured, Kernel.PRODUCT)
    if known and dtype not in known:
        raise unknown(f"dtype of the products measured on {whose}", dtype, known)


def _dtypes(measured: Sequence[MeasuredKernel], kernel: Kernel) -> list[str]:
    return sorted({row.dtype for row in measured if row.kernel == kernel})


class _Near:
    """Events of one kind and dtype with the measured kernels nearest to them in size; positions are logarithms of sizes."""

    def __init__(self, which: I64, rows: I64, measured: Sequence[MeasuredKernel], sizes: F64) -> None:
        self.which, self.rows = which, rows  # the events, and the numbers of the measured kernels
        of = [measured[row] for row in rows.tolist()]
        at = _logs([(row.batch, row.m, row.n, row.k, row.moved * (row.kernel == Kernel.OTHER)) for row in of])
        places, back = np.unique(sizes[which], axis=0, return_inverse=True)
        self.back = back.reshape(-1)  # the number of the place of each event
        self.square = ((places[:, None, :] - at[None, :, :]) ** 2).sum(axis=2)  # [places, R] distances
        self.met = self.square < _SAME


def _similar_events(measured: Sequence[MeasuredKernel], events: Events, dtype: str, whose: str) -> Iterator[_Near]:
    """Yield sets of similar events with the measured kernels that correct their times."""
    ran, names = (np.array(words, dtype=str) for words in ([timed_as(name, dtype) for name in events.dtype], events.name))
    of_rows, sizes = np.array([row.name for row in measured]), _sizes(events, dtype)
    for kernel in sorted({row.kernel for row in measured}):
        here = (events.kind == Kind.COMPUTE) & (events.kernel == kernel) & ((kernel == Kernel.OTHER) | (events.m > 0))
        for of_dtype in np.unique(ran[here]).tolist():
            if kernel == Kernel.PRODUCT:
                check_products(measured, of_dtype, whose)
            rows = np.array([i for i, row in enumerate(measured) if (row.kernel, row.dtype) == (kernel, of_dtype)], np.int64)
            own = here & (ran == of_dtype)
            for name in np.unique(names[own]).tolist():
                alike = rows[of_rows[rows] == name] if (of_rows[rows] == name).any() else rows[of_rows[rows] == ""]
                if len(alike):
                    yield _Near(np.flatnonzero(own & (names == name)), alike, measured, sizes)


def _sizes(events: Events, dtype: str) -> F64:
    """Return [E, D] the logarithms of the D sizes (such as m, n, k) of the events, as they are timed."""
    moved = np.where(events.kernel == Kernel.OTHER, timed_bytes(events, dtype), 0)
    return _logs(np.stack([events.batch, events.m, events.n, events.k, moved], axis=1))


def _logs(sizes: ArrayLike) -> F64:
    return np.asarray(np.log(np.maximum(np.asarray(sizes, float), 1)))


def _interpolated(near: _Near, ratios: F64) -> F64:
    """Return [E] the ratio of measured to modelled time for each event, interpolated between the nearest measured kernels."""
    weights = np.where(near.met.any(axis=1, keepdims=True), near.met, 1 / np.maximum(near.square, _SAME))
    return np.asarray(np.exp(weights @ ratios / weights.sum(axis=1))[near.back])
