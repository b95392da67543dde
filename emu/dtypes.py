"""The element types (dtypes) of data, by torch's names, and their reduce operations; torch itself is not imported."""

from emu.errors import must_be
from emu.registry import unknown

REDUCE_OPERATIONS = ("sum", "avg", "product", "min", "max", "and", "or", "xor")

FP8 = "float8_e4m3fn"  # in which products of FP8 are timed
REALS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_MOVED = {FP8: 1, "float8_e5m2": 1}  # types that torch cannot add
_COMPLEX = {"complex128": 16, "complex64": 8}
_FLAGS = {"bool": 1}
_INTEGERS = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8}
DTYPES = {**REALS, **_MOVED, **_COMPLEX, **_FLAGS, **_INTEGERS}  # bytes of an element


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element.

    Raises:
        InputError: The dtype is none of `DTYPES`.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    return DTYPES[dtype]


def reductions_of(dtype: str) -> tuple[str, ...]:
    """Return the reduce operations of a dtype, in the order of `REDUCE_OPERATIONS`."""
    if dtype in _MOVED:
        return ()
    if dtype in _COMPLEX:
        return ("sum", "avg")
    cannot = {"and", "or", "xor"} if dtype in REALS else {"avg"} if dtype in _FLAGS else set[str]()
    return tuple(name for name in REDUCE_OPERATIONS if name not in cannot)


def check_reduces(where: str, dtype: str, reduce: str, can: tuple[str, ...]) -> None:
    """Check that a dtype supports a reduce operation.

    Args:
        where: The beginning of the message.
        dtype: The dtype.
        reduce: The reduce operation.
        can: The reduce operations of the dtype.

    Raises:
        InputError: It does not. The message names the operations that the dtype supports.
    """
    if not can:
        mend = "it can be moved, by an operation that adds nothing; cast it to reduce it"
        raise must_be(where, "dtype", "one that can be reduced", dtype, mend)
    if reduce not in can:
        raise must_be(where, "reduce", f"{', '.join(can[:-1])} or {can[-1]} for {dtype}", reduce)
