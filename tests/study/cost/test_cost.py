"""Costs of networks, held to the tables that papers print."""

import pytest

from emu.errors import InputError
from emu.study.cost.cost import cost, read_book
from emu.topology.catalogue import build_topology
from launch.data.prices import find_book

HBD = {  # InfiniteHBD's Table 6: dollars and watts of a GPU, and of a GPU and GB/s
    "tpuv4:cubes=4x4x4": (1567.20, 19.39, 5.22, 0.06),
    "nvl:36": (9563.20, 75.95, 10.63, 0.08),
    "nvl:72": (9563.20, 75.95, 10.63, 0.08),
    "nvl:576": (30417.60, 413.45, 33.80, 0.46),
    "infinitehbd:k=2": (2626.80, 48.10, 3.28, 0.06),
    "infinitehbd:k=3": (3740.60, 72.05, 4.68, 0.09),
    "hpn:pod:backup=8": (1042.49, 90.75, 20.85),  # follows from Table 8; Table 6 has no such row
}
RAILX = {  # RailX's Table 6: millions, and percent of the injection of 36 ports that is global bandwidth
    "fat-tree:radix=64,tiers=2,planes=36": (415.9, 100.0),
    "fat-tree:radix=64,taper=3,planes=36": (395.7, 33.3),
    "hammingmesh:boards=32x32,side=4,planes=9": (375.6, 12.5),
    "rail-only:dims=64x64,planes=18": (375.6, 50.0),
    "railx:torus:m=4,n=9,nodes=64x64,k=1": (751.1, None),
    "railx:torus:m=7,n=9,nodes=64x64,k=1": (1314.4, None),
}
BOOK = """
source = "offers"
[any]
free = ["NPU", "cable*"]
[any.parts]
"switch" = { dollars = 100, watts = 10 }
[big-switch.parts]
"switch" = { dollars = 70 }
"""


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("word", HBD)
def test_infinitehbds_table_6_is_its_table_8_times_what_is_built(word):
    found = cost(build_topology(word), find_book("infinitehbd"))
    each = (found.dollars_per_npu, found.watts_per_npu)
    computed = tuple(round(value, 2) for value in (*each, *(value / found.injection_GBps for value in each)))
    assert computed[: len(HBD[word])] == HBD[word]


@pytest.mark.parametrize("word", RAILX)
def test_railxs_table_6_is_its_prices_times_what_is_built(word):
    millions, share = RAILX[word]
    found = cost(build_topology(word), find_book("railx"), across=share is not None)
    assert round(found.dollars / 1e6, 1) == millions
    if share is not None:
        assert found.injection_GBps == pytest.approx(1800)
        assert round(100 * found.global_GBps / found.injection_GBps, 1) == share


def test_a_section_of_a_system_goes_before_that_of_any(tmp_path):
    book = read_book(write(tmp_path, BOOK), "mine.toml")
    one, other = (
        cost(build_topology(word), book) for word in ("big-switch:n=8", "full-mesh:n=8,bandwidth=50GB/s,latency=500ns")
    )
    assert (one.dollars, one.watts, one.free) == (70, 0, ("NPU", "cable"))
    assert (other.dollars, other.watts) == (0, 0)


@pytest.mark.parametrize(
    ("tiers_of_any", "tiers_of_its_own", "injected"),
    [("GPU to NVSwitch", "NIC to rail", 50), ("NIC to rail", "GPU to NVSwitch", 450), ("rail to spine", "NIC to rail", 50)],
)
def test_the_tiers_of_a_systems_own_section_go_before_those_of_any(tmp_path, tiers_of_any, tiers_of_its_own, injected):
    """A server's GPU has 450 GB/s of NVLink and a NIC of 50 GB/s."""
    sections = f"[any]\nfree = ['*']\ntiers = ['{tiers_of_any}']\n[servers]\ntiers = ['{tiers_of_its_own}']\n"
    found = cost(build_topology("servers:nodes=2,gpus=4"), read_book(write(tmp_path, sections), "mine.toml"))
    assert found.injection_GBps == injected


def test_a_section_without_tiers_has_those_of_any(tmp_path):
    """A GPU's own section says a price alone: the NIC of 50 GB/s is still all that counts."""
    text = "[any]\nfree = ['*']\ntiers = ['NIC to rail']\n[servers.parts]\nNPU = { dollars = 3 }\n"
    found = cost(build_topology("servers:nodes=2,gpus=4"), read_book(write(tmp_path, text), "mine.toml"))
    assert (found.injection_GBps, found.dollars) == (50, 24)


def test_energy_is_power_times_hours_times_the_price(tmp_path):
    book = read_book(write(tmp_path, BOOK.replace("dollars = 70", "watts = 1000")), "mine.toml")
    assert cost(build_topology("big-switch:n=8"), book).energy_dollars(2, 0.25) == pytest.approx(2 * 8760 * 0.25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[any.parts]\n",
            r"mine: no price for 'NPU', 'switch', 'cable' of big-switch:n=8; give one, or name the part in",
        ),
        ("[nvl]\n", r"mine: prices must be of big-switch, or of any, got 'nvl'; give a section \[big-switch.parts\]"),
        ("", r"mine.toml: no prices; give a section \[any.parts\]"),
        ("[any]\ncost = 1\n", "mine.toml, .any.: .*cost"),
        (
            "[any.parts]\nswitch = 3\n",
            r"mine.toml, \[any\], 'switch': a price must be \{ dollars = 35.6, watts = 0.1 \}",
        ),
        ("[any.parts]\nswitch = {dollars = -1}\n", r"'switch': dollars must be a number of 0 or more, got -1"),
        ("[any]\nfree = 'NPU'\n", r"mine.toml, \[any\]: free must be names in brackets, such as \['link\*'\], got 'NPU'"),
        ("[any]\nfree = ['*']\ntiers = ['rail']\n", r"mine: tiers of big-switch:n=8 must be some of .*, got 'rail'"),
    ],
)
def test_a_book_that_lacks_something_is_one_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        cost(build_topology("big-switch:n=8"), read_book(write(tmp_path, text), "mine.toml"))


def test_a_book_that_nobody_has_is_one_line_with_those_there_are():
    with pytest.raises(InputError, match="no price book is called 'hpn'; "):
        find_book("hpn")
