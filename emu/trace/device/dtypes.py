"""What ran in float32 timed as another data type.

E events of a role.
"""

import numpy as np

from emu.arrays import I64
from emu.registry import unknown
from emu.trace.trace import Events

FLOAT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def timed_as(ran: str, dtype: str) -> str:
    """The dtype that one which ran is timed as."""
    return dtype if ran == "float32" else ran


def timed_bytes(events: Events, dtype: str) -> I64:
    """[E] the bytes of each event, had its float32 elements been of `dtype`.

    Raises:
        InputError: an unknown dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, FLOAT_BYTES)
    ran = np.array([d == "float32" for d in events.dtype], dtype=np.bool_)
    return np.asarray(events.bytes - ran * events.count * (4 - FLOAT_BYTES[dtype]))
