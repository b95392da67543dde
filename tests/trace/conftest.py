import numpy as np
import pytest

from emu.arrays import column
from emu.trace.trace import Events, Kind

TYPES = {
    "step": np.int32, "kind": np.int16, "stream": np.int16, "flops": np.float64, "bytes": np.int64, "count": np.int64,
    "group": np.int32, "instance": np.int32, "root": np.int32, "tag": np.int32,
}  # fmt: skip
DEFAULT = {"step": 1, "stream": 0, "flops": 0.0, "bytes": 0, "count": 0, "group": -1, "instance": 0, "root": 0, "tag": 0}


class Words:
    """Events written by hand; `waits` names earlier rows."""

    def compute(self, ms=0.0, **more):
        """A computation of so many ms at 1 TFLOP/s."""
        return {"kind": Kind.COMPUTE, "name": "mm", "flops": ms * 1e9, **more}

    def mark(self, waits=(), **more):
        return {"kind": Kind.MARK, "name": "step", "waits": waits, **more}

    def collective(self, count, name="all_reduce", group=0, **more):
        return {"kind": Kind.COLLECTIVE, "name": name, "group": group, "bytes": 4 * count, "count": count, **more}

    def send(self, count, peer, **more):
        return {"kind": Kind.SEND, "name": "send", "group": 0, "root": peer, "bytes": 4 * count, "count": count, **more}

    def recv(self, count, peer, **more):
        return {"kind": Kind.RECV, "name": "recv", "group": 0, "root": peer, "bytes": 4 * count, "count": count, **more}

    def events(self, *rows):
        rows = [{**DEFAULT, **r} for r in rows]
        columns = {name: column([r[name] for r in rows], t) for name, t in TYPES.items()}
        waits = [tuple(r.get("waits", ())) for r in rows]
        return Events(
            **columns,
            name=tuple(r["name"] for r in rows),
            dtype=tuple(r.get("dtype", "float32") for r in rows),
            wait_start=column(np.cumsum([0, *map(len, waits)]), np.int64),
            wait=column([w for several in waits for w in several], np.int32),
        )


@pytest.fixture
def words():
    return Words()
