"""Matching in time and by translations: proofs, closed forms, and networks on which there are no translations."""

import numpy as np
import pytest

from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.collective.transform import slot_representatives
from emu.errors import InputError
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.study.timing import CollectiveJob, time_collective
from emu.synthesis import hops as hop_search
from emu.synthesis.hops import hop_network
from emu.synthesis.matching import matched_schedule
from emu.synthesis.translation import grid_hops, grid_schedule
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn, made

LINK = "bandwidth=50GB/s,latency=500ns"


def never() -> None:
    """Let no time end."""


def time_s(topology, schedule, size):
    n = topology.n_npus
    job = CollectiveJob(operation("all_gather", n), schedule, size // 4, 4, topology, np.arange(n, dtype=np.int32))
    return time_collective(job).end_s


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_matching_does_the_operation(seed, units, inward):
    topology = drawn(seed)
    n = topology.n_npus
    hops = hop_network(topology, tuple(range(n)))
    schedule = matched_schedule(hops, range(n), units, 2.0**16, never, inward=inward)
    prove(schedule, operation("reduce_scatter" if inward else "all_gather", n))


def test_small_blocks_on_a_full_mesh_are_sent_directly():
    topology = build_topology(f"full-mesh:n=5,{LINK}")
    schedule = matched_schedule(hop_network(topology, tuple(range(5))), range(5), 1, 8.0, never, inward=False)
    assert schedule.n_rounds == 1


@pytest.mark.parametrize("dims", ["4x4", "2x3x4", "5", "16x16"])
def test_translations_of_a_torus_are_proved_and_near_what_its_ports_take(dims):
    topology = build_topology(f"torus:dims={dims},{LINK}")
    n = topology.n_npus
    grid = grid_hops(topology, hop_network(topology, tuple(range(n))))
    schedule = grid_schedule(grid, 8, 2.0**20 / 8, never)
    assert schedule.translate == topology.dims
    prove(*slot_representatives(schedule, operation("all_gather", n)))
    least_s = (n - 1) * 2**20 / (sum(2 if d > 1 else 0 for d in topology.dims) * 50e9)
    assert least_s <= time_s(topology, schedule, n * 2**20) <= 1.02 * least_s + 10e-6


def test_on_one_switch_every_round_is_a_shift():
    topology = build_topology(f"switch:n=6,{LINK}")
    schedule = grid_schedule(grid_hops(topology, hop_network(topology, tuple(range(6)))), 1, 2.0**20, never)
    assert (schedule.n_rounds, schedule.n_rows) == (5, 5)
    assert time_s(topology, schedule, 6 * 2**20) == pytest.approx(5 * 2**20 / 50e9 + 1e-6, rel=1e-6)


@pytest.mark.parametrize("line", ["ub-mesh:pod:dims=2x2x2x2", f"switch:n=6,{LINK}"])
def test_where_switches_join_many_ranks_hops_of_rank_0_along_axes_stand_for_all(monkeypatch, line):
    """Hops are found that are kept of all, and what they give does the operation."""
    topology = build_topology(line)
    n = topology.n_npus
    full = grid_hops(topology, hop_network(topology, tuple(range(n))))
    monkeypatch.setattr(hop_search, "_MOST_PAIRS", n * n - 1)
    topology = build_topology(line)
    hops = hop_network(topology, tuple(range(n)))
    assert not hops.src.any()
    grid, kept = grid_hops(topology, hops), full.along_axes() or full
    assert grid.along_axes() is None
    assert (grid.to.tolist(), grid.taken) == (kept.to.tolist(), kept.taken)
    prove(*slot_representatives(grid_schedule(grid, 4, 2.0**18, never), operation("all_gather", n)))
    for name in ("all_gather", "reduce_scatter", "all_reduce", *(["all_to_all"] if "switch" in line else [])):
        found = synthesize(topology, SynthesisRequest(name, 2**20))
        prove(found.schedule.expand(), found.operation)
    with pytest.raises(InputError, match="; so many ranks behind switches need translations, and none serve here; take fewer"):
        synthesize(topology, SynthesisRequest("broadcast", 2**20))


def test_many_ranks_that_switches_join_unevenly_are_refused(monkeypatch):
    monkeypatch.setattr(hop_search, "_MOST_PAIRS", 3)
    uneven = made(2, 3, [(a, b, rate * 1e9, 0) for rate, npu in ((1, 0), (2, 1)) for a, b in ((npu, 2), (2, npu))])
    with pytest.raises(InputError, match="synthesize: ranks must be at most 1 where switches join them, got 2"):
        hop_network(uneven, (0, 1))


def test_hops_along_axes_serve_racks_under_a_clos_better_than_all():
    """Ways that lead to no like NPU of another rack take the links between racks for one block each."""
    topology = build_topology("ub-mesh:dcn:dims=2x2x1x2x2x2")
    grid = grid_hops(topology, hop_network(topology, tuple(range(32))))
    few = grid.along_axes()
    reached = np.unique(few.to).tolist()
    assert reached == [1, 2, 4, 8, 16]
    every, some = (time_s(topology, grid_schedule(each, 16, 2.0**19, never), 2**28) for each in (grid, few))
    assert some < 0.97 * every


def test_there_are_no_translations_of_a_path_or_of_some_of_the_npus():
    path = made(3, 3, [(a, b, 1e9, 0) for i in range(2) for a, b in ((i, i + 1), (i + 1, i))])
    assert grid_hops(path, hop_network(path, (0, 1, 2))) is None
    torus = build_topology(f"torus:dims=4x4,{LINK}")
    assert grid_hops(torus, hop_network(torus, tuple(range(8)))) is None


def test_ranks_that_no_path_joins_are_told():
    parted = made(4, 4, [(0, 1, 1e9, 0), (1, 0, 1e9, 0), (2, 3, 1e9, 0), (3, 2, 1e9, 0)])
    with pytest.raises(InputError, match="on made no path from rank 0 leads to rank 2; take ranks"):
        hop_network(parted, (0, 1, 2, 3))
