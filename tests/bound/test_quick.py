"""Quick bounds: what they say, how few flows they take, and what they load."""

import subprocess
import sys
from functools import cache

import pytest

from emu.bound.limit import FULL_EFFORT, QUICK_EFFORT, limit_of
from emu.bound.linear_programs import NEAR
from emu.collective.operation import OPERATIONS, operation
from emu.topology.catalogue import build_topology
from emu.topology.facts import flow
from emu.topology.facts.flow import least_cut

LINK = "bandwidth=50GB/s,latency=500ns"
SAME = [f"switch:n=12,{LINK}", f"ring:n=12,{LINK}", f"ring:n=9,{LINK}", f"torus:dims=4x4,{LINK}", f"torus:dims=3x2x4,{LINK}"]
SAME += ["ub-mesh:board", "fat-tree:radix=4,tiers=3", "hpn:pod:dims=2x2x4,aggs=2", "servers:nodes=3,gpus=4,network=rails"]
_built = cache(build_topology)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", SAME)
def test_where_npus_are_alike_quick_bounds_say_what_all_bounds_say(line, name, no_trees) -> None:
    topology = _built(line)
    what = topology, operation(name, topology.n_npus), tuple(range(topology.n_npus))
    found = (limit_of(*what, helpers=False, effort=effort).terms for effort in (QUICK_EFFORT, FULL_EFFORT))
    quick, every = (1e9 * max(term.s_per_byte for term in terms) for terms in found)
    assert quick == pytest.approx(every, rel=2 * NEAR)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
@pytest.mark.parametrize("line", [f"switch:n=1024,{LINK}", "ub-mesh:rack", f"torus:dims=4x4x4,{LINK}", "fat-tree:radix=16"])
def test_a_quick_bound_takes_few_flows_however_many_ranks_there_are(line, name, monkeypatch) -> None:
    topology, flows = _built(line), []
    monkeypatch.setattr(flow, "least_cut", lambda *of: flows.append(of) or least_cut(*of))
    limit_of.cache_clear()
    found = limit_of(topology, operation(name, topology.n_npus), tuple(range(topology.n_npus)), helpers=False)
    assert 0 < len(flows) <= 3 * QUICK_EFFORT.flows
    assert found.trees_s_per_byte is None


def test_quick_bounds_load_neither_scipy_nor_networkx() -> None:
    script = """if True:
        import sys
        from emu.bound.limit import limit_of
        from emu.collective.operation import OPERATIONS, operation
        from emu.topology.catalogue import build_topology
        for line in ("ub-mesh:rack", "dragonfly:p=2,a=4,h=2", "hpn:pod:dims=2x2x4,aggs=2"):
            topology = build_topology(line)
            n = topology.n_npus
            for name in OPERATIONS:
                limit_of(topology, operation(name, n), tuple(range(n)), helpers=False)
        print({"scipy", "networkx", "numba", "torch"} & set(sys.modules))
    """
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
