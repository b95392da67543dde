"""Emu's own price book: every fabric of the catalogue has its price there, or the reason why it has none."""

import tomllib
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import cost
from emu.topology.catalogue import TOPOLOGIES, build_topology
from launch.data import presets
from launch.data.presets import DEFAULT, find_book

BOOK = find_book(DEFAULT)
GIVEN = tomllib.loads((Path(presets.__file__).with_name("prices") / f"{DEFAULT}.toml").read_text())
WORDS = [f"{name}:{example}" if example else name for name, made in TOPOLOGIES for example in made.examples]
# The parts of systems without a price, each with a word of the reason.
UNPRICED = {
    "big-switch": ("switch", "ideal"),
    "switch": ("switch", "any rate"),
    "servers": ("switch", "a port for each server"),
    "rail-optimised": ("rail switch", "any size"),
    "dgx-h100": ("NVSwitch", "no source"),
    "full-mesh": ("cable", "any rate and length"),
    "hypercube": ("cable", "any rate and length"),
    "ring": ("cable", "any rate and length"),
    "torus": ("cable", "any rate and length"),
    "sip-ocs": ("OCS", "a port for each NPU"),
    "sip-ring": ("link of a ring", "no source"),
    "sipac": ("WSS", "no source"),
    "flex-sipac": ("WSS", "no source"),
}


@pytest.mark.parametrize("word", WORDS)
def test_each_example_of_the_catalogue_has_a_price_or_the_reason_why_not(word):
    topology = build_topology(word)
    part, why = UNPRICED.get(word.partition(":")[0], ("", ""))
    if part:
        with pytest.raises(InputError) as error:
            cost(topology, BOOK)
        assert part in str(error.value)
        assert why in str(error.value)
        assert "\n" not in str(error.value)
        return
    found = cost(topology, BOOK)
    assert 0 < found.dollars < found.high.dollars
    assert set(found.parts) == set(found.sources)
    assert set(found.parts) | set(found.free) == set(topology.bill)


def test_every_price_of_the_book_has_its_source_and_is_of_a_part_that_some_fabric_has():
    used = {}
    for name, made in TOPOLOGIES:
        for example in (*made.examples, *made.full[:1]):
            topology = build_topology(f"{name}:{example}" if example else name)
            section = BOOK.of(topology)
            for part in topology.bill:
                used.setdefault(section.price(part) and section.price(part).source, set()).add(part)
    for system, section in GIVEN.items():
        for part, price in section.get("parts", {}).items() if isinstance(section, dict) else ():
            assert price["source"] in used, (system, part)


# Dollars of an NPU and of a part, worked out from the printed figures by hand.
PASSIVE = 14 * 35.6 / 25
BY_HAND = {
    "nvl:72": (18 * 28000 + 5184 * 35.6, 18 * 28000 + 5184 * 125),  # InfiniteHBD's Table 8; RailX's 250 $ for 50 GB/s
    "fat-tree:radix=64": (96 * 7480 + 8192 * 360, 96 * 35000 + 8192 * 1000 + 4096 * 6.8),
    "tpuv4:cubes=4x4x4": (
        48 * 35000 + 5120 * 63.6 + 6144 * 360,
        48 * 80000 + 5120 * 250 + 6144 * (1000 + 6.8),
    ),
    "ub-mesh:rack": (448 * 4 * PASSIVE, 448 * 4 * 14 * 250 / 50),
    "ub-mesh:pod": (
        1152 * 1008 * 14960 / 6400 + 7168 * 4 * PASSIVE + 1536 * 4 * 14 * 320 / 200,
        1152 * 1008 * 35000 / 3200 + 7168 * 4 * 70 + 1536 * 4 * (14 * 320 / 200 + 560) / 2,
    ),
    "railx:torus:m=4,n=9,nodes=64x64": (4608 * 35000 + 589824 * 360, 4608 * 80000 + 589824 * 1006.8),
    "hpn:segment": (16 * 14960 + 2048 * 35.6, 16 * 70000 + 2048 * 125),
}


@pytest.mark.parametrize("word", BY_HAND)
def test_a_fabric_costs_what_the_printed_prices_add_up_to(word):
    found = cost(build_topology(word), BOOK)
    assert (found.dollars, found.high.dollars) == pytest.approx(BY_HAND[word])


def test_infinitehbds_prices_lie_within_those_of_emus_book():
    for word in ("tpuv4:cubes=4x4x4", "nvl:72", "nvl:576", "infinitehbd:k=2", "hpn:pod:backup=8"):
        found, paper = cost(build_topology(word), BOOK), cost(build_topology(word), find_book("infinitehbd"))
        assert found.dollars <= paper.dollars <= found.high.dollars
        assert found.watts == pytest.approx(paper.watts)
        assert found.injection_GBps == paper.injection_GBps
