"""Rows of the UB-Mesh paper about its collectives and routes, on built topologies."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from emu.collective.algorithm import algorithm
from emu.topology.paths.deadlock import cycle
from launch.papers.formulas import FormulaCase, check_formula
from launch.papers.networks import build_once, collective_s
from launch.papers.targets import Answer

_FAILED = 3


def _rings() -> Answer:
    """Answer which share of the block the busiest link carries in a multi-ring all_reduce."""
    cases = []
    for n in (5, 7, 8, 9, 16):
        plan = algorithm("all_reduce", "multi-ring").schedule(n).expand()
        _, slots = np.unique(plan.src.astype(np.int64) * n + plan.dst, return_counts=True)
        cases.append(FormulaCase(f"V on the busiest link, n={n}", float(slots.max()) / plan.n_slots, 2 / n))
    return check_formula(cases)


def _paths() -> float:
    """Return the time of an all_to_all by single paths as a multiple of that by several paths, limited by bandwidth alone."""
    word = "ub-mesh:rack:lane_rate=0.5GB/s,latency=0s"
    single, several = (collective_s(word, "all_to_all", name, (8, 8), 64 * 64 * 2**16) for name in ("single-path", "multipath"))
    return single / several


def _backup() -> Answer:
    """Answer how many more links a neighbour of a failed NPU has to the backup NPU."""
    rack = build_once("ub-mesh:rack-full")
    near = rack.links.dst[(rack.links.src == _FAILED) & (rack.links.dst < 64)].astype(np.int64)
    backup = np.full(len(near), int(rack.place(64, [_FAILED])[_FAILED]))
    more = set((rack.routes(near, backup, np.zeros_like(near)).hops - 1).tolist())
    words = "no LRS of table 3 has ports for all boards and for the backup NPU, so two LRS of a back-plane stand for one"
    return Answer(" or ".join(f"+{hops} hop" for hops in sorted(more)), (words,))


def _lanes() -> Answer:
    """Answer whether two virtual lanes keep all pairs of a rack free of deadlock with detours."""
    rack = build_once("ub-mesh:rack:routing=detour")
    pairs = np.stack(np.meshgrid(np.arange(64), np.arange(64)), -1).reshape(-1, 2)
    src, dst = pairs[pairs[:, 0] != pairs[:, 1]].T
    routes = rack.routes(np.repeat(src, 16), np.repeat(dst, 16), np.tile(np.arange(16), len(src)))
    assert routes.virtual is not None
    lanes = int(routes.virtual.max()) + 1
    words = "a rule of Emu's own, as TFC is not published; all pairs of a rack, 16 ways each, wait in no circle"
    return Answer(float(lanes), (words,), holds=lanes == 2 and cycle(routes, routes.virtual) == [])


TIMES: Mapping[str, Callable[[], Answer | float | str]] = MappingProxyType(
    {"ub-mr-opt": _rings, "ub-mp-a2a": _paths, "ub-backup": _backup, "ub-vl": _lanes}
)
