"""Routes that are chosen for jobs one after another, so that those that count most meet one another least.

A pair of nodes has other paths by other channels. For each pair and channel of a job, the path is taken whose busiest link has
least to carry, with all that earlier jobs and heavier pairs send. Source: Cao et al., Crux (SIGCOMM 2024), 4.1, where the most
intense job comes first. L links, V tasks, T different pairs with their channels, A paths that are tried for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import F64, I64, column, digest
from emu.errors import InputError, must_be
from emu.fabric.engine.packets.ways import message_ends
from emu.study.jobs.step_graphs.link_shares import by_intensity
from emu.study.jobs.step_graphs.placed_job import PlacedJob, busy_links_s
from emu.topology.topology import CHANNELS, Router, Routes, Topology

_TRIED = 16  # paths of a pair; the first is its own
_MOST_PAIRS = 2**15


def on_least_loaded_routes(jobs: Sequence[PlacedJob]) -> tuple[PlacedJob, ...]:
    """Return jobs whose messages take the least loaded of their paths, the most intense job first.

    Every message of each job must be known (`PlacedJob.is_whole`).

    Raises:
        InputError: The topology sprays messages, or a job has too many pairs.
    """
    for job in jobs:
        if job.topology.spray is not None:
            mend = "take it with another route="
            raise InputError(f"jobs: routes least-loaded: {job.topology.name} spreads messages over all paths; {mend}")
    found, load_s = [*jobs], np.zeros(len(jobs[0].topology.links))
    for number in by_intensity(jobs, [job.link_s(is_composed=False) for job in jobs]):
        found[number] = jobs[number].rerouted(_with_choices(jobs[number], load_s))
        load_s = load_s + busy_links_s(found[number].messages.graph)
    return tuple(found)


def _with_choices(job: PlacedJob, load_s: F64) -> Topology:
    """Return the topology of a job with the paths that are chosen for it.

    Args:
        job: The job.
        load_s: [L] the seconds for which the steps of earlier jobs keep each link busy.
    """
    topology, (graph, key) = job.topology, job.messages
    src, dst = message_ends(graph, topology.links)
    is_message = src >= 0
    assert key is not None
    every = np.stack([src, dst, key])[:, is_message]
    asked, number = np.unique(every, axis=1, return_inverse=True)
    if asked.shape[1] > _MOST_PAIRS:
        what = f"at most {_MOST_PAIRS} where routes are least-loaded"
        raise must_be("jobs", f"pairs of {job.job.name}", what, asked.shape[1], "take fewer ranks or own routes")
    size: F64 = graph.size_bytes[is_message].astype(np.float64)
    sent = np.asarray(np.bincount(number.ravel(), size, asked.shape[1]), np.float64)
    chosen = _chosen_keys(topology, asked, sent, load_s.copy())
    router = _ChosenRoutes.of(topology, asked, chosen)
    return replace(topology, router=router, symmetry=None, routing=(*topology.routing, digest((*asked, chosen))))


def _chosen_keys(topology: Topology, asked: I64, sent: F64, load_s: F64) -> I64:
    """Return [T] the key of the path that each pair takes, chosen for the pairs with most bytes first.

    Args:
        topology: The topology.
        asked: [3, T] the source, the destination and the key of each pair.
        sent: [T] the bytes that each pair sends over its path in a step.
        load_s: [L] the seconds for which each link is busy already; it is changed.
    """
    src, dst, key = (np.repeat(each, _TRIED) for each in asked)
    tried = key // CHANNELS * CHANNELS + (key + np.tile(np.arange(_TRIED), asked.shape[1])) % CHANNELS
    routes, capacity = topology.routes(src, dst, tried), topology.capacity_Bps
    chosen: I64 = asked[2].copy()
    for pair in np.argsort(-sent, kind="stable").tolist():
        paths = [routes.of(at) for at in range(pair * _TRIED, (pair + 1) * _TRIED)]
        worst_s = [float((load_s[path] + sent[pair] / capacity[path]).max()) for path in paths]
        best = int(np.argmin(np.round(worst_s, 15)))
        chosen[pair] = tried[pair * _TRIED + best]
        load_s[paths[best]] += sent[pair] / capacity[paths[best]]
    return chosen


@dataclass(frozen=True, eq=False, slots=True)
class _ChosenRoutes:
    """A router that gives some pairs the path of another key."""

    router: Router
    n_nodes: int
    keys: I64  # the different keys of these pairs, ascending
    code: I64  # [T] the number of each pair with its key, ascending
    chosen: I64  # [T] the key of its path

    @staticmethod
    def of(topology: Topology, asked: I64, chosen: I64) -> "_ChosenRoutes":
        """Return the router of a topology in which pairs [3, T] have the paths of the keys [T] chosen for them."""
        keys, place = np.unique(asked[2], return_inverse=True)
        code = (asked[0] * topology.n_nodes + asked[1]) * len(keys) + place.ravel()
        order = np.argsort(code)
        columns = (column(each, np.int64) for each in (keys, code[order], chosen[order]))
        return _ChosenRoutes(topology.router, topology.n_nodes, *columns)

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        code = (src * self.n_nodes + dst) * len(self.keys) + place
        at = np.minimum(np.searchsorted(self.code, code), len(self.code) - 1)
        known = (self.keys[place] == key) & (self.code[at] == code)
        return self.router(src, dst, np.where(known, self.chosen[at], key))
