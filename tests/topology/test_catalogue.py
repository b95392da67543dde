import re
from dataclasses import dataclass
from itertools import takewhile

import pytest

from emu import registry
from emu.errors import InputError
from emu.registry import Registry
from emu.topology import catalogue
from emu.topology.builders.wiring import star
from emu.topology.catalogue import (
    TOPOLOGIES,
    Bandwidth,
    Count,
    Invariants,
    Latency,
    build_topology,
    parse_topology,
    read_topology,
    topology,
)
from emu.topology.topology import Topology

LINK = "bandwidth=50GB/s,latency=500ns"
UNIT = "a time with its unit, such as 500ns"
RATE = "a rate above 0 such as 50GB/s or 400Gb/s"
SIZES = "whole numbers of 1 or more joined by x, such as 8x8x4"


def test_settings_are_read_by_their_kinds():
    blueprint, arguments = read_topology("torus:dims=8x8x4,bandwidth=400Gb/s,latency=1.5us")
    assert blueprint.name == "torus"
    assert arguments == {"dims": (8, 8, 4), "bandwidth": 50e9, "latency": 1_500_000_000}


def test_a_topology_is_named_by_what_was_asked_for():
    assert build_topology("ub-mesh:rack").name == "ub-mesh:rack"
    assert build_topology(f"ring:n=3,{LINK}").name == f"ring:n=3,{LINK}"


def test_a_blueprint_says_what_it_takes():
    assert TOPOLOGIES.find("torus").settings == (("dims", ""), ("bandwidth", ""), ("latency", ""))
    assert TOPOLOGIES.find("ub-mesh:rack").settings == (("route", "shortest"), ("lane_rate", "14GB/s"), ("latency", "300ns"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toros:dims=3", "no topology is called 'toros'; did you mean torus or railx:torus?"),
        ("switch:big:n=3", "no topology is called 'switch:big'; did you mean switch or big-switch?"),
        (f"torus:dims=0x4,{LINK}", f"torus: dims must be {SIZES}, got '0x4'"),
        (f"torus:dims=8x,{LINK}", f"torus: dims must be {SIZES}, got '8x'"),
        (f"torus:dims=8*8,{LINK}", f"torus: dims must be {SIZES}, got '8*8'"),
        (f"switch:n=0,{LINK}", "switch: n must be a whole number of 1 or more, got '0'"),
        (f"switch:n=-3,{LINK}", "switch: n must be a whole number of 1 or more, got '-3'"),
        (f"switch:n=1e3,{LINK}", "switch: n must be a whole number of 1 or more, got '1e3'"),
        ("switch:n=8,bandwidth=0GB/s,latency=1ns", f"switch: bandwidth must be {RATE}, got '0GB/s'"),
        ("switch:n=8,bandwidth=-1GB/s,latency=1ns", f"switch: bandwidth must be {RATE}, got '-1GB/s'"),
        ("switch:n=8,bandwidth=fast,latency=1ns", f"switch: bandwidth must be {RATE}, got 'fast'"),
        ("switch:n=8,bandwidth=50,latency=1ns", f"switch: bandwidth must be {RATE}, got '50'"),
        ("switch:n=8,bandwidth=1GB/s,latency=500", f"switch: latency must be {UNIT}, got '500'"),
        ("switch:n=8,bandwidth=1GB/s,latency=1e-6", f"switch: latency must be {UNIT}, got '1e-6'"),
        ("ring:n=8,bandwith=1GB/s", "ring: unknown setting 'bandwith'; did you mean bandwidth?"),
        ("ub-mesh:rack:bandwidth=1GB/s", "ub-mesh:rack: unknown setting 'bandwidth'; it takes route, lane_rate, latency"),
        ("ring", "ring: settings missing: n, bandwidth, latency; write ring:n=...,bandwidth=...,latency=..."),
        ("switch:n=8", "switch: settings missing: bandwidth, latency; write switch:n=8,bandwidth=...,latency=..."),
        ("torus:latency=1us", "torus: settings missing: dims, bandwidth; write torus:dims=...,bandwidth=...,latency=1us"),
        (f"full-mesh:n=5000,{LINK}", "full-mesh: links must be at most 2**24, got 24995000; take fewer NPUs"),
        (f"switch:n=8388609,{LINK}", "switch: links must be at most 2**24, got 16777218; take fewer NPUs"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(text, message):
    with pytest.raises(InputError) as refused:
        build_topology(text)
    assert str(refused.value) == message


def test_a_latency_that_does_not_parse_names_the_topology_and_the_units():
    with pytest.raises(InputError, match=r"^switch: latency must be a time .* got '5 weeks'; units are s, ms, us"):
        build_topology("switch:n=8,bandwidth=1GB/s,latency=5 weeks")


def test_a_negative_latency_is_refused():
    with pytest.raises(InputError, match=r"^switch: latency must be a time of 0 or more such as 500ns or 1.5us, got '-1ns'"):
        build_topology("switch:n=8,bandwidth=1GB/s,latency=-1ns")


@pytest.mark.parametrize(
    ("text", "meant"),
    [("ub-mesh", [name for name, _ in TOPOLOGIES if name.startswith("ub-mesh:")]), ("ub-mesh:rak", ["ub-mesh:rack"])],
)
def test_an_unknown_variant_is_refused_with_those_there_are(text, meant):
    with pytest.raises(InputError) as refused:
        build_topology(text)
    assert str(refused.value).startswith(f"no topology is called '{text}'; did you mean ")
    assert meant
    assert set(meant) <= set(str(refused.value).removesuffix("?").partition("mean ")[2].split(" or "))


def _invariants(n, bandwidth, latency):
    return Invariants(2 * n, 1, 2)


def test_a_name_filed_twice_is_refused():
    def again(n: Count, bandwidth: Bandwidth, latency: Latency):
        return star("ring", n, bandwidth, latency)

    TOPOLOGIES.find("ring")  # the catalogue fills itself on first use
    with pytest.raises(
        InputError, match=r"^topology 'ring' is defined twice: simple\.py, line \d+ and test_catalogue\.py, line \d+; give one"
    ):
        topology("ring", source="none", examples=(), invariants=_invariants)(again)


def test_a_builder_whose_settings_have_no_kind_is_refused():
    def odd(n: int):
        return star("odd", n, 1e9, 0)

    message = r"^odd: the annotation of n must be Count, Dims, Bandwidth or Latency, got <class 'int'>$"
    with pytest.raises(InputError, match=message):
        topology("odd", source="none", examples=(), invariants=_invariants)(odd)


@dataclass(frozen=True)
class Rates:
    bandwidth: Bandwidth
    latency: Latency = 500_000_000


@pytest.fixture
def filed(monkeypatch):
    """A topology that takes its rates as one argument, and gives back what its invariants are asked with."""
    assert TOPOLOGIES.find("ring")  # so that the catalogue is in its own registry
    monkeypatch.setattr(catalogue, "TOPOLOGIES", Registry("topology", "topologies"))
    monkeypatch.setattr(registry, "_OWN", [])  # what is of the user's own is filed in other processes, too

    @topology("mine", source="none", examples=(), invariants=lambda **asked: asked)
    def mine(n: Count = 3, *, rates: Rates, width: Count = 2) -> Topology:
        return star("mine", n, width * rates.bandwidth, rates.latency)

    return catalogue.TOPOLOGIES.find("mine")


def test_fields_of_a_dataclass_are_settings_in_the_place_of_the_argument(filed):
    assert filed.settings == (("n", "3"), ("bandwidth", ""), ("latency", "500ns"), ("width", "2"))
    links = build_topology("mine:n=4,bandwidth=1GB/s,latency=1us").links
    assert len(links) == 8
    assert set(links.bandwidth_Bps) == {2e9}
    assert set(links.latency_fs) == {1_000_000_000}


def test_a_field_that_has_no_default_must_be_given(filed):
    with pytest.raises(InputError, match=r"^mine: settings missing: bandwidth; write mine:bandwidth=\.\.\.,width=3$"):
        build_topology("mine:width=3")


def test_invariants_are_asked_with_all_arguments_of_the_builder_by_name(filed):
    assert filed.invariants(bandwidth=1e9) == {"n": 3, "rates": Rates(1e9), "width": 2}
    assert filed.invariants(n=5, bandwidth=1e9, latency=7) == {"n": 5, "rates": Rates(1e9, 7), "width": 2}


def test_a_dataclass_whose_fields_have_no_kind_is_refused():
    @dataclass
    class Odd:
        width: float

    def odd(odd: Odd):
        return star("odd", 2, odd.width, 0)

    message = r"^odd: the annotation of width must be Count, Dims, Bandwidth or Latency, got <class 'float'>$"
    with pytest.raises(InputError, match=message):
        topology("odd", source="none", examples=(), invariants=_invariants)(odd)


@pytest.mark.parametrize("name", [name for name, _ in TOPOLOGIES])
def test_first_settings_may_stand_without_their_names(name):
    """Each example says the same where the names of its first settings are left out."""
    blueprint = TOPOLOGIES.find(name)
    for settings in filter(None, blueprint.examples):
        words = dict(word.split("=", 1) for word in settings.split(","))
        values = takewhile(lambda value: value[:1].isdigit(), [words.get(key, "") for key, _ in blueprint.kinds])
        first = [key for (key, _), _ in zip(blueprint.kinds, values, strict=False)]
        rest = [f"{key}={value}" for key, value in words.items() if key not in first]
        bare = ",".join([*(words[key] for key in first), *rest])
        assert parse_topology(f"{name}:{bare}" if bare else name) == (name, words)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("torus:4x4,50GB/s,latency=1us", {"dims": "4x4", "bandwidth": "50GB/s", "latency": "1us"}),
        ("hpn:pod:2x2x2,aggs=2", {"dims": "2x2x2", "aggs": "2"}),
        ("railx:torus:2,2,4x4", {"m": "2", "n": "2", "nodes": "4x4"}),
        ("hammingmesh:4x4,2", {"boards": "4x4", "side": "2"}),
    ],
)
def test_a_grid_may_stand_alone_behind_the_name_of_any_family(text, settings):
    assert parse_topology(text)[1] == settings
    assert len(build_topology(text).links) > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torus:dims=4x4,50GB/s,latency=1us", "has a setting '50GB/s' that is not one new key=value"),
        ("torus:4x4,1GB/s,1us,7", "has a setting '7' that is not one new key=value"),
        ("nvl:73", "no topology is called 'nvl:73'"),
        ("torus:4y4,1GB/s,1us", "torus: dims must be whole numbers of 1 or more joined by x"),
    ],
)
def test_a_value_out_of_place_is_refused(text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        build_topology(text)
