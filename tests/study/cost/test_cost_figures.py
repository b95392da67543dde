"""The figures of a cost for each NPU and for each GB/s, and the parts that are paid for, by hand on small machines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import Cost, OwnershipTerms, cost, ownership_cost
from emu.study.cost.price_book import Price, PriceBook, read_book
from emu.topology.catalogue import build_topology

BOOK = """
[any]
free = ["NPU"]
[any.parts]
"switch" = { dollars = 900, watts = 60, source = "an offer" }
"cable" = { dollars = [4, 4], watts = [2, 5] }
"""


def book(folder: Path, text: str = BOOK) -> PriceBook:
    path = folder / "mine.toml"
    path.write_text(text)
    return read_book(path, "mine.toml")


def star(n: int) -> str:
    return f"switch:n={n},bandwidth=50GB/s,latency=500ns"


def bought(**fields: float | None) -> Cost:
    """A network of 1,200 $ and 600 W for 8 NPUs, of 40 GB/s each, 10 GB/s of them to the other half and 16 to all."""
    known = {"dollars": 1200.0, "watts": 600.0, "injection_GBps": 40.0, "global_GBps": 10.0, "exchange_GBps": 16.0}
    return replace(Cost("a net", "a book", 8, {}, (), 0.0, 0.0, 1.0, None), **{**known, **fields})


def test_money_and_power_are_those_of_an_npu_over_each_kind_of_bandwidth() -> None:
    found = bought()
    assert (found.dollars_per_npu, found.watts_per_npu) == (150, 75)
    assert (found.dollars_per_injection_GBps, found.watts_per_injection_GBps) == (3.75, 1.875)
    assert (found.dollars_per_global_GBps, found.watts_per_global_GBps) == (15, 7.5)
    assert found.dollars_per_exchange_GBps == 9.375


@pytest.mark.parametrize("rate", [None, 0.0])
def test_a_bandwidth_that_is_none_or_was_not_asked_for_has_no_price(rate: float | None) -> None:
    found = bought(global_GBps=rate, exchange_GBps=rate)
    assert (found.dollars_per_global_GBps, found.watts_per_global_GBps, found.dollars_per_exchange_GBps) == (None, None, None)


@pytest.mark.parametrize(("npus", "global_GBps"), [(2, 50), (3, 50), (5, 50), (8, 50)])
def test_of_an_odd_number_of_npus_the_smaller_half_sends_to_the_larger(tmp_path: Path, npus: int, global_GBps: float) -> None:
    """Each NPU of either half has one port of 50 GB/s."""
    topology = build_topology(star(npus))
    assert cost(topology, book(tmp_path), across=True).global_GBps == pytest.approx(global_GBps)
    plain = cost(topology, book(tmp_path))
    assert (plain.global_GBps, plain.exchange_GBps) == (None, None)


def test_an_all_to_all_over_a_switch_has_the_rate_of_the_ports_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    found = cost(build_topology(star(4)), book(tmp_path), exchange=True)
    assert (found.exchange_GBps, found.global_GBps) == (pytest.approx(50), None)


def test_parts_are_told_with_their_counts_prices_and_sources_at_the_lowest_and_at_the_highest_prices(tmp_path: Path) -> None:
    """Prices of a cable differ in its power alone."""
    topology = replace(build_topology(star(5)), bill={"NPU": 5, "switch": 2, "cable": 15})
    found = cost(topology, book(tmp_path))
    assert (found.topology, found.prices, found.npus, found.free) == (topology.name, "mine", 5, ("NPU",))
    assert dict(found.parts) == {"switch": (2, Price(900, 60)), "cable": (15, Price(4, 2))}
    assert (found.dollars, found.watts, dict(found.sources)) == (2 * 900 + 15 * 4, 2 * 60 + 15 * 2, {"switch": "an offer"})
    high = found.high
    assert high is not None
    assert dict(high.parts) == {"switch": (2, Price(900, 60)), "cable": (15, Price(4, 5))}
    assert (high.dollars, high.watts, high.free, high.high) == (found.dollars, 2 * 60 + 15 * 5, ("NPU",), None)
    assert cost(topology, book(tmp_path, BOOK.replace("[2, 5]", "2"))).high is None


def test_injection_is_the_mean_over_npus_of_all_links_that_leave_them(tmp_path: Path) -> None:
    """One of four NPUs has a port of twice the rate; what comes down from the switch does not count."""
    topology = build_topology(star(4))
    rates = np.where(topology.links.src == 2, 100e9, topology.links.bandwidth_Bps)
    faster = replace(topology, links=replace(topology.links, bandwidth_Bps=rates), symmetry=None)
    assert cost(faster, book(tmp_path)).injection_GBps == pytest.approx((3 * 50 + 100) / 4)


@pytest.mark.parametrize("tiers", ["", 'tiers = ["loopback", "fibre"]\n'])
def test_injection_counts_links_that_switches_light_in_turns_once(tmp_path: Path, tiers: str) -> None:
    """Each of the two bundles at a GPU carries 400 GB/s, whether it loops or sends out; the DCN has 50 more."""
    topology = build_topology("infinitehbd:binary:nodes=16")
    free = f"[any]\n{tiers}free = [{', '.join(f'{part!r}' for part in topology.bill)}]\n"
    assert cost(topology, book(tmp_path, free)).injection_GBps == (800 if tiers else 850)


def test_every_missing_part_is_named_with_its_reason_and_no_other_part(tmp_path: Path) -> None:
    text = BOOK.replace('"cable"', '"cord"') + '[any.unpriced]\n"li*" = "sold by weight"\n'
    topology = replace(build_topology(star(2)), bill={"NPU": 2, "lid": 1, "switch": 1, "cable": 2})
    with pytest.raises(InputError, match=r"price book mine: no price for 'lid' \(sold by weight\), 'cable' of switch:n=2"):
        cost(topology, book(tmp_path, text))


def test_an_npu_in_the_book_and_the_power_alone_of_another_are_too_much(tmp_path: Path) -> None:
    found = cost(build_topology(star(4)), book(tmp_path, BOOK + '"NPU" = { dollars = 7 }\n'))
    with pytest.raises(InputError, match="leave out --npu"):
        ownership_cost(found, OwnershipTerms(Price(0.0, 5.0), 1.0, 0.1))
    assert ownership_cost(found, OwnershipTerms(Price(0.0, 0.0), 1.0, 0.0)).tco_dollars == 900 + 4 * 4 + 4 * 7


def test_a_machine_that_costs_its_energy_alone_costs_something() -> None:
    free = bought(dollars=0.0)
    found = ownership_cost(free, OwnershipTerms(Price(0.0, 50.0), 3.0, 0.2))
    assert found.capex_dollars == 0
    assert found.opex_dollars == pytest.approx((600 + 8 * 50) / 1000 * 24 * 365 * 3 * 0.2)
    assert found.per_second_and_dollar(found.opex_dollars) == 1
