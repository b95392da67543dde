"""Costs of networks, held to the tables that papers print."""

import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import cost
from emu.study.cost.price_book import read_book
from emu.topology.catalogue import build_topology
from launch.data.presets import find_book

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


RANGES = """
[any]
free = ["NPU", "link*"]
[any.parts]
"switch" = { dollars = [100, 300], watts = [10, 20], source = "two offers" }
"cable" = { dollars = 5 }
"link x*" = { dollars = [1, 2] }
["fat-tree:pgft".parts]
"cable" = { dollars = 7 }
[torus.unpriced]
"cable" = "of any length"
"""


def test_prices_from_the_lowest_to_the_highest_are_a_cost_of_each_end(tmp_path):
    book = read_book(write(tmp_path, RANGES), "mine.toml")
    found = cost(build_topology("big-switch:n=4"), book)
    assert (found.dollars, found.watts, found.sources) == (100 + 4 * 5, 10, {"switch": "two offers"})
    assert (found.high.dollars, found.high.watts, found.high.high) == (300 + 4 * 5, 20, None)
    assert found.high.injection_GBps == found.injection_GBps
    assert cost(build_topology("full-mesh:n=4,bandwidth=50GB/s,latency=500ns"), book).high is None


def test_a_lane_s_price_counts_as_often_as_a_link_has_lanes(tmp_path):
    book = read_book(write(tmp_path, RANGES), "mine.toml")
    found = cost(build_topology("ub-mesh:rack"), book)
    assert (found.dollars, found.high.dollars) == (448 * 4, 448 * 4 * 2)
    section = book.of(build_topology("ub-mesh:rack"))
    assert section.price("link x4.5") is None
    assert section.is_free("link x4.5")


BY_RATE = """
[any]
free = ["NPU", "cable"]
[any.parts]
"switch" = { dollars = [100, 300], watts = 10, at = "50GB/s", tier = "NPU to row *" }
"optical transceiver" = { dollars = 5 }
"link x*" = { dollars = 2, at = "10GB/s" }
"""


@pytest.mark.parametrize(("row_GBps", "times"), [(25, 0.5), (50, 1), (200, 4)])
def test_a_price_at_a_bandwidth_is_in_proportion_to_that_of_the_tier(tmp_path, row_GBps, times):
    """Six switches of 2x4, and four transceivers of each of eight NPUs, which have one price."""
    book = read_book(write(tmp_path, BY_RATE), "mine.toml")
    found = cost(build_topology(f"rail-only:dims=2x4,column=50GB/s,row={row_GBps}GB/s"), book)
    assert (found.dollars, found.high.dollars) == (600 * times + 160, 1800 * times + 160)
    assert found.watts == 60 * times


def test_a_price_at_a_bandwidth_is_that_of_a_whole_link_and_not_of_each_lane(tmp_path):
    """A board of eight has 28 links of four lanes of 7 GB/s: 28 GB/s are 2.8 times what the price is of."""
    book = read_book(write(tmp_path, BY_RATE), "mine.toml")
    topology = build_topology("ub-mesh:board:lane_rate=7GB/s")
    (link,) = [part for part in topology.bill if part.startswith("link x")]
    rate_Bps = float(topology.links.bandwidth_Bps[0])
    assert cost(topology, book).dollars == pytest.approx(topology.bill[link] * 2 * rate_Bps / 10e9)


@pytest.mark.parametrize(
    ("price", "where", "said"),
    [
        (
            "at = '50GB/s'",
            "rail-only:dims=2x4,row=25GB/s",
            "prices: links of rail-only:.* must be of one bandwidth where a price",
        ),
        ("at = '50GB/s', tier = 'spine'", "rail-only:dims=2x4", r"must be one of its own \(NPU to row switch, NPU to column"),
        (
            "tier = 'spine'",
            "rail-only:dims=2x4",
            r"mine.toml, \[any\], 'switch': at must be given beside tier, such as '50GB/s'",
        ),
        ("at = 50", "rail-only:dims=2x4", r"mine.toml, \[any\], 'switch': at must be text in quotes, got 50"),
        ("at = '50'", "rail-only:dims=2x4", r"mine.toml, \[any\], 'switch': at must be a rate above 0"),
    ],
)
def test_a_bandwidth_of_a_price_that_cannot_be_is_refused(tmp_path, price, where, said):
    text = f"[any]\nfree = ['*']\n[any.parts]\nswitch = {{ dollars = 1, {price} }}\n"
    with pytest.raises(InputError, match=said):
        cost(build_topology(where), read_book(write(tmp_path, text), "mine.toml"))


def test_a_variant_s_own_section_goes_before_that_of_its_system_and_a_reason_before_the_price_of_any(tmp_path):
    book = read_book(write(tmp_path, RANGES), "mine.toml")
    plain, pgft = (book.of(build_topology(f"fat-tree:{words}")) for words in ("radix=4", "pgft:down=4x2,up=1x2,parallel=1x1"))
    assert (plain.price("cable").low.dollars, pgft.price("cable").low.dollars) == (5, 7)
    with pytest.raises(InputError, match=r"mine: no price for 'cable' \(of any length\) of torus"):
        cost(build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=500ns"), book)


def test_energy_is_power_times_hours_times_the_price(tmp_path):
    book = read_book(write(tmp_path, BOOK.replace("dollars = 70", "watts = 1000")), "mine.toml")
    assert cost(build_topology("big-switch:n=8"), book).energy_dollars(2, 0.25) == pytest.approx(2 * 8760 * 0.25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[any.parts]\n",
            r"for 'NPU', 'switch', 'cable' of big-switch:n=8; give --prices a \.toml file that has a price of it, or its",
        ),
        ("[nvl]\n", r"mine: prices must be of big-switch, or of any, got 'nvl'; give a section \[big-switch.parts\]"),
        ("", r"mine.toml: no prices; give a section \[any.parts\]"),
        ("[any]\ncost = 1\n", "mine.toml, .any.: .*cost"),
        (
            "[any.parts]\nswitch = 3\n",
            r"mine.toml, \[any\], 'switch': a price must be \{ dollars = 35.6, watts = 0.1 \}",
        ),
        ("[any.parts]\nswitch = {dollars = -1}\n", r"'switch': dollars must be a number of 0 or more, got -1"),
        ("[any.parts]\nswitch = {dollars = [1, -1]}\n", r"'switch': dollars must be a number of 0 or more, got \[1, -1\]"),
        (
            "[any.parts]\nswitch = {dollars = [2, 1]}\n",
            r"'switch': dollars must be a number, or the lowest and the highest, such as \[360, 1000\], got \[2, 1\]",
        ),
        ("[any.parts]\nswitch = {dollars = [2]}\n", r"'switch': dollars must be a number, or the lowest and the highest"),
        ("[any.parts]\nswitch = {source = 3}\n", r"'switch': source must be text in quotes, got 3"),
        ("[any.unpriced]\nswitch = 3\n", r"mine.toml, \[any\]: unpriced, 'switch' must be the reason, in quotes, got 3"),
        (
            "[any]\nfree = ['*']\n[any.unpriced]\nsw* = 'not sold'\n".replace("sw*", "'sw*'"),
            r"mine: no price for 'switch' \(not sold\) of",
        ),
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


MERGED = """
[any]
free = ["NPU"]
[any.parts]
"switch" = { dollars = 100, source = "an offer" }
[any.unpriced]
"cable" = "in no list"
[big-switch]
free = ["link*", "switch*"]
[big-switch.parts]
"hub" = { dollars = 3 }
[big-switch.unpriced]
"cable" = "sold by the metre"
"""


def test_a_systems_own_section_adds_to_that_of_any_and_its_reasons_go_first(tmp_path):
    section = read_book(write(tmp_path, MERGED), "mine.toml").of(build_topology("big-switch:n=8"))
    assert [section.is_free(part) for part in ("NPU", "link x4", "switch", "cable")] == [True, True, False, False]
    assert [section.price(part).low.dollars for part in ("switch", "hub")] == [100, 3]  # a price goes before `free`
    assert section.why_unpriced("cable") == "sold by the metre"
    other = read_book(write(tmp_path, MERGED), "mine.toml").of(build_topology("nvl:36"))
    assert (other.is_free("link x4"), other.why_unpriced("cable"), other.price("hub")) == (False, "in no list", None)


def test_a_part_that_is_named_as_unpriced_is_not_free_by_a_pattern_that_has_it_too(tmp_path):
    text = "[any]\nfree = ['*']\n[any.unpriced]\ncable = 'in no list'\n"
    section = read_book(write(tmp_path, text), "mine.toml").of(build_topology("big-switch:n=8"))
    assert (section.is_free("cable"), section.is_free("switch")) == (False, True)


def test_a_book_has_bandwidths_if_one_of_its_prices_does(tmp_path):
    assert read_book(write(tmp_path, BY_RATE), "mine.toml").has_bandwidths
    assert not read_book(write(tmp_path, RANGES), "mine.toml").has_bandwidths
