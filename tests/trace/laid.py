"""Traces written by hand, laid on a star of 1 GB/s without latency, and what became of them."""

import numpy as np

from emu.arrays import column
from emu.collective.choice import Choice
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.report.report import report
from emu.trace.trace import Events, Group, Kind, Trace

DEVICE = Device("npu", {"float32": 1e12, "bfloat16": 2e12}, hbm_Bps=1e12, gemm_share=1, hbm_efficiency=1)
MS_OF_FLOATS = 250_000  # that a port of 1 GB/s carries in 1 ms
WORLD = Group("world", (0, 1))
ROWS, COLUMNS = np.arange(16).reshape(4, 4), np.arange(16).reshape(4, 4).T

TYPES = {
    "step": np.int32, "kind": np.int16, "stream": np.int16, "flops": np.float64, "bytes": np.int64, "count": np.int64,
    "kernel": np.int16, "batch": np.int32, "m": np.int32, "n": np.int32, "k": np.int32,
    "group": np.int32, "instance": np.int32, "root": np.int32, "tag": np.int32,
}  # fmt: skip
DEFAULT = {**dict.fromkeys(TYPES, 0), "step": 1, "flops": 0.0, "group": -1}


class Words:
    """Events written by hand; `waits` names earlier rows, `splits` the sizes of blocks."""

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
        waits, splits = ([tuple(r.get(name, ())) for r in rows] for name in ("waits", "splits"))
        return Events(
            **columns,
            name=tuple(r["name"] for r in rows),
            dtype=tuple(r.get("dtype", "float32") for r in rows),
            wait_start=column(np.cumsum([0, *map(len, waits)]), np.int64),
            wait=column([w for several in waits for w in several], np.int32),
            split_start=column(np.cumsum([0, *map(len, splits)]), np.int64),
            split=column([s for several in splits for s in several], np.int64),
        )


def star_of(n):
    return star("star", n, 1e9, 0)


def trace_of(*roles, role_of_rank=(0, 0), groups=(WORLD,), group_of=None, meta=()):
    n = len(role_of_rank)
    return Trace(
        roles,
        np.array(role_of_rank, np.int32),
        groups,
        group_of or ((0,),) * n,
        peak_by_part=np.zeros((len(roles), 4), np.int64),
        meta=meta,
    )


def replay(trace, choice, topology, device=DEVICE, dtype="float32", *, every_rank=False):
    laying = TraceLayout(trace, choice, topology, device, dtype)
    return laying.build_graph(None if every_rank else laying.job_orbits())


def replayed(trace, topology=None, dtype="float32", device=DEVICE, **more):
    topology = topology or star_of(trace.n_ranks)
    return replay(trace, Choice({"all_reduce": "ring"}), topology, device, dtype, **more)


def told(trace, topology=None, dtype="float32"):
    laid = replayed(trace, topology, dtype)
    return report(trace, laid, run_graph(laid.graph))


def in_ms(step):
    return tuple(t / 10**12 for t in (step.step_time_fs, step.compute_fs, step.exposed_comm_fs, step.idle_fs))


def grid_trace(*roles, role_of_rank=(0,) * 16):
    """Every rank of a 4 x 4 grid has a row ("tp", its group 0), a column ("dp", 1) and the world (2)."""
    of_axes = (("tp", ROWS), ("dp", COLUMNS), ("world", ROWS.reshape(1, 16)))
    groups = [Group(axis, tuple(ranks)) for axis, all_of_them in of_axes for ranks in all_of_them.tolist()]
    group_of = tuple((rank // 4, 4 + rank % 4, 8) for rank in range(16))
    return trace_of(*roles, role_of_rank=role_of_rank, groups=groups, group_of=group_of)


def moments(found, timeline):
    """When each event of each rank begins and ends; set-up never."""
    tasks = (found.begins, timeline.start_fs), (found.ends, timeline.end_fs)
    return [np.where(task >= 0, ticks[task], -1).tolist() for task, ticks in tasks]
