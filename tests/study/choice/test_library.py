"""A library's choice for the requests of a run: what it sees of a group, and which words ask for it."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims, Request
from emu.collective.libraries import LIBRARIES, GroupNetwork, LibraryChoice
from emu.errors import InputError
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on, library_words
from emu.study.choice.library_choice import group_network, library_choice
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.training.composed.software_costs import costed_topology
from emu.topology.catalogue import build_topology

HOSTS = build_topology("servers:nodes=4,gpus=4")
SIZE = 2**26


def request(operation: str, ranks: tuple[int, ...], elements: int = SIZE // 4, dtype: str = "float32") -> Request:
    return Request(operation, ranks, 0, elements, dtype)


@pytest.mark.parametrize(
    ("npus", "servers", "in_order"),
    [
        ((0, 1, 2, 3), 1, True),
        (tuple(range(16)), 4, True),
        ((0, 4, 8, 12), 4, True),
        ((0, 2, 4, 6), 2, True),
        ((0, 4, 1, 5), 2, False),
        ((0, 1, 4), 2, False),
    ],
)
def test_a_group_is_seen_by_its_servers_and_whether_its_order_follows_them(
    npus: tuple[int, ...], servers: int, in_order: bool
) -> None:
    assert group_network(HOSTS, npus) == GroupNetwork(len(npus), servers, in_order, 450e9, 50e9, False, False)


def test_a_group_is_seen_by_its_slowest_ports() -> None:
    """GPU 1 has half of the bandwidth to its host, and GPU 6 a fifth of that to its NIC."""
    links = HOSTS.links
    slower = np.where(links.dimension == 0, (links.src == 1) / 2, (links.src == 6) * 4 / 5)
    uneven = replace(HOSTS, links=replace(links, bandwidth_Bps=links.bandwidth_Bps * (1 - slower)))
    seen = [group_network(uneven, npus) for npus in ((0, 1, 4), (4, 5, 6), (0, 1, 5, 6), (2, 3, 7))]
    assert [each.within_Bps for each in seen] == [225e9, 450e9, 225e9, 450e9]
    assert [each.between_Bps for each in seen] == pytest.approx([50e9, 10e9, 10e9, 50e9])


def test_the_word_of_a_library_serves_every_group_by_its_own_servers() -> None:
    choice = choice_on(HOSTS, ("auto", "nccl"), "float32")
    served = [choice.algorithm_for(request("all_reduce", ranks)) for ranks in (tuple(range(16)), (0, 1, 2, 3), (0, 4, 8, 12))]
    assert served == [AlgorithmOnDims("rail-ring", (4, 4)), AlgorithmOnDims("ring"), AlgorithmOnDims("ring")]


def test_what_a_library_calls_its_choice_is_known_of_the_requests_that_it_chose_for() -> None:
    npus, chooser = tuple(range(16)), choice_on(HOSTS, ("auto", "all_gather=nccl"), "float32").chooser
    found = library_choice("nccl", HOSTS, npus, "all_gather", SIZE)
    assert found is not None
    assert library_words(chooser, request("all_gather", npus)) == f"nccl: {found.told}"
    assert library_words(chooser, request("all_reduce", npus)) is None
    assert library_words(choice_on(HOSTS, ("nccl",), "float32").chooser, request("scatter", npus)) is None  # it has none
    assert library_words(None, request("all_gather", npus)) is None


def test_a_library_is_asked_for_bytes_as_they_are_timed() -> None:
    npus = tuple(range(16))
    sizes = [2**exponent for exponent in range(8, 30)]
    wide, narrow = (choice_on(HOSTS, ("nccl",), dtype) for dtype in ("float32", "bfloat16"))
    expected = [library_choice("nccl", HOSTS, npus, "all_gather", size) for size in sizes]
    assert len(set(expected)) > 2
    asked = [request("all_gather", npus, size // 4) for size in sizes]
    assert [wide.algorithm_for(each) for each in asked] == [each.served for each in expected if each]
    assert [narrow.algorithm_for(each) for each in asked[1:]] == [each.served for each in expected[:-1] if each]


def test_one_operation_by_a_library_and_the_others_by_auto_or_a_name() -> None:
    npus = tuple(range(16))
    both = choice_on(HOSTS, ("auto", "all_gather=nccl", "reduce_scatter=ring"), "float32")
    auto, nccl = (choice_on(HOSTS, (word,), "float32") for word in ("auto", "nccl"))
    few = 2**12  # elements: where NCCL's rings take longer than what is fastest
    gathered, reduced, scattered = (request(name, npus, few) for name in ("all_gather", "all_reduce", "reduce_scatter"))
    assert both.algorithm_for(gathered) == nccl.algorithm_for(gathered) != auto.algorithm_for(gathered)
    assert both.algorithm_for(reduced) == auto.algorithm_for(reduced) != nccl.algorithm_for(reduced)
    assert both.algorithm_for(scattered) == AlgorithmOnDims("ring") != auto.algorithm_for(scattered)
    turned = choice_on(HOSTS, ("nccl", "all_reduce=auto"), "float32")
    assert turned.algorithm_for(reduced) == auto.algorithm_for(reduced)
    assert turned.algorithm_for(gathered) == nccl.algorithm_for(gathered)


def test_what_a_library_has_no_word_for_is_served_as_where_none_is_named() -> None:
    npus = tuple(range(16))
    assert choice_on(HOSTS, ("nccl",), "float32").algorithm_for(request("scatter", npus)) == choice_on(
        HOSTS, (), "float32"
    ).algorithm_for(request("scatter", npus))


def test_a_stack_with_a_library_asks_the_switches_of_hosts_to_add_unless_they_never_do() -> None:
    """Then NVLS serves where it did not, in a host and over several; without a stack or with adds=no nothing changes."""
    npus, stack = tuple(range(16)), Stack(library="nccl")
    for adds, asked, always in (("asked", True, False), ("yes", True, True), ("no", False, False)):
        fabric = build_topology(f"servers:nodes=2,adds={adds}")
        assert (fabric.adds, costed_topology(stack, fabric).adds) == (always, asked)
        own = [choice_on(each, ("nccl",), "float32") for each in (fabric, costed_topology(stack, fabric))]
        found = [[choice.algorithm_for(request("all_reduce", ranks)) for ranks in (npus, npus[:8])] for choice in own]
        adding, without = (
            [AlgorithmOnDims("in-switch-tree", (2, 8)), AlgorithmOnDims("in-switch-tree", (1, 8))],
            [AlgorithmOnDims("rail-ring", (2, 8)), AlgorithmOnDims("ring")],
        )
        assert found == [adding if always else without, adding if asked else without]


@pytest.mark.parametrize(("adds", "asked", "always"), [("asked", True, False), ("yes", True, True), ("no", False, False)])
def test_the_switches_of_one_server_add_where_a_stack_with_a_library_asks_them_to(adds: str, asked: bool, always: bool) -> None:
    """A DGX of eight has the setting that servers have: NVLS serves only where its switches add."""
    fabric, wanted = build_topology(f"dgx-h100:adds={adds}"), request("all_reduce", tuple(range(8)))
    under = costed_topology(Stack(library="nccl"), fabric)
    served = [choice_on(each, ("nccl",), "float32").algorithm_for(wanted).algorithm for each in (fabric, under)]
    assert served == ["in-switch-tree" if adding else "ring" for adding in (always, asked)]
    assert build_topology("dgx-h100").adds is False


def test_a_sum_over_the_switches_of_hosts_sends_over_each_nic_what_a_pair_of_trees_does() -> None:
    """With 2 hosts each NIC carries an eighth of the block once each way; a rank's NVLinks carry it and an eighth."""
    fabric = costed_topology(Stack(library="nccl"), build_topology("servers:nodes=2,nvlink=900GB/s"))
    found = list(bench(fabric, BenchRequest("all_reduce", "in-switch-tree", (2**30,), dims=(2, 8))))
    assert found[0].time_s == pytest.approx(2**30 / 8 / 50e9, rel=0.05)
    slow = costed_topology(Stack(library="nccl"), build_topology("servers:nodes=2,nvlink=60GB/s"))
    found = list(bench(slow, BenchRequest("all_reduce", "in-switch-tree", (2**30,), dims=(2, 8))))
    assert found[0].time_s == pytest.approx(2**30 * 9 / 8 / 60e9, rel=0.1)


def test_a_library_that_names_no_algorithm_of_the_catalogue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES._filed, "own", lambda *_: LibraryChoice(AlgorithmOnDims("rnig"), "its own"))
    with pytest.raises(InputError, match="no all_reduce algorithm is called 'rnig'; did you mean ring"):
        choice_on(HOSTS, ("own",), "float32").algorithm_for(request("all_reduce", (0, 1)))
