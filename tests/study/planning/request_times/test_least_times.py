"""The bound of a request in a search: one group of each that symmetries make equal tells what all of them take."""

from dataclasses import replace

import pytest

from emu.model.generate.item import Ask
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.site import Site, fitting_algorithms
from emu.study.planning.request_times import request_floor
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import Rates
from emu.study.planning.request_times.request_floor import BoundedRequest, least_request_time
from emu.topology.catalogue import build_topology

PLAN = parse_plan("tp=4,cp=2,dp=4", global_batch=8, seq=512)


@pytest.mark.parametrize("line", ["servers:nodes=4,gpus=8", "ub-mesh:rack", "fat-tree:radix=8"])
@pytest.mark.parametrize("axes", [("tp", "cp", "dp"), ("dp", "tp", "cp")])
def test_one_group_of_each_that_symmetries_make_equal_bounds_all_of_them(line, axes, monkeypatch):
    topology = build_topology(line)
    where, looked_at, fewest = (
        PlacedGroups.of(topology, PLAN, axes, Rates.of(topology), ports_of(topology, PLAN.world)),
        [],
        request_floor._Fabric.fewest,
    )
    for axis, operation in (("tp", "all_gather"), ("dp", "all_reduce")):
        asked = BoundedRequest(Ask(axis, operation, 2**22, "bfloat16"), where.at(0, axis))
        with monkeypatch.context() as patched:
            patched.setattr(
                request_floor._Fabric, "fewest", lambda self, of: looked_at.append(fewest(self, of)) or looked_at[-1]
            )
            few = least_request_time(asked, topology, ("auto",), 0)
            patched.setattr(request_floor._Fabric, "fewest", lambda _, of: of)
            assert least_request_time(asked, topology, ("auto",), 0) == few
        groups = len(asked.groups.npus)
        assert len(looked_at[-1].ranks) == (groups if line.startswith("fat-tree") else 1) < 2 * groups


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("line", ["torus:dims=4x2,bandwidth=10GB/s,latency=2us", "switch:n=8,bandwidth=10GB/s,latency=1us"])
def test_of_algorithms_that_may_serve_a_request_the_least_counts_and_no_less_than_any_of_them(line, operation):
    """Where one comes within 3 % of what any rank must send or receive at full rate, that itself is the bound."""
    topology, plan = build_topology(line), parse_plan("dp=8", global_batch=8, seq=512)
    rates = Rates.of(topology)
    where = PlacedGroups.of(topology, plan, ("dp",), rates, ports_of(topology, 8))
    asked = BoundedRequest(Ask("dp", operation, 2**13, "bfloat16"), where.at(0, "dp"))
    names = [each.name for each in fitting_algorithms(operation, Site.first(topology, 8))]
    each = {name: least_request_time(asked, topology, (f"{operation}={name}",), 10**9).delivered_s for name in names}
    floor_s = rates.least_s(operation, 2**13, 2, 8) + 1e-6  # of the launch
    found_s = least_request_time(asked, topology, ("auto",), 10**9).delivered_s
    assert len(set(each.values())) > 2
    if min(each.values()) > 1.03 * floor_s:
        assert found_s == min(each.values())
    else:
        assert found_s == pytest.approx(floor_s)


def test_numbers_of_communicators_count_where_a_hash_gives_their_messages_other_paths():
    """Ranks below one leaf switch have one path, whatever the number of their communicator; ranks of two leaves have more."""
    topology, plan = build_topology("fat-tree:radix=8"), parse_plan("tp=4,dp=8", global_batch=8, seq=512)
    where = PlacedGroups.of(topology, plan, ("tp", "dp"), Rates.of(topology), ports_of(topology, plan.world))
    unknown = replace(where, ports=None)
    assert (where.at(0, "tp").numbers, where.at(0, "dp").numbers) == (1, where.numbers)
    assert unknown.at(0, "tp").numbers == where.numbers > 1
