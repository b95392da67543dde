"""The amounts of priced things that a job takes of a machine, their sums, and their names, by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import OwnershipTerms
from emu.study.cost.price_book import Price, PriceBook, read_book
from emu.study.design.price_list import PricedThing, PriceList, amounts_of
from emu.topology.catalogue import build_topology

RACK = replace(build_topology("ub-mesh:rack"), bill={"NPU": 64, "link x4": 100, "link x8": 30, "switch": 6, "lid": 9})
BOOK = """
[any]
free = ["NPU", "lid"]
[any.parts]
"link x*" = { dollars = 2, watts = 1 }
"switch" = { dollars = [100, 300], watts = [10, 20] }
"""
TERMS = OwnershipTerms(Price(1000.0, 700.0), 2.0, 0.25)


def book_of(folder: Path, text: str) -> PriceBook:
    path = folder / "mine.toml"
    path.write_text(text)
    return read_book(path, "mine.toml")


def told(book: PriceBook, terms: OwnershipTerms, npus: int = 16) -> dict[str, float]:
    return {thing.name: amount for thing, amount in amounts_of(RACK, npus, "h100", book, terms).items()}


def test_a_job_takes_its_share_of_all_parts_its_own_npus_and_the_energy_of_both(tmp_path: Path) -> None:
    """A quarter of 100 * 4 + 30 * 8 lanes and of 6 switches of 15 W halfway, and 16 NPUs of 700 W for two years."""
    found = amounts_of(RACK, 16, "h100", book_of(tmp_path, BOOK), TERMS)
    lane, switch = Price(2.0, 1.0), (Price(100.0, 10.0), Price(300.0, 20.0))
    assert [*found] == [
        PricedThing("link x*", lane, lane),
        PricedThing("switch", *switch),
        PricedThing("NPU h100", TERMS.npu, TERMS.npu),
        PricedThing("kWh", Price(0.25, 0.0), Price(0.25, 0.0)),
    ]
    kwh = (160 + 1.5 * 15 + 16 * 700) / 1000 * 24 * 365 * 2
    assert [*found.values()] == pytest.approx([160, 1.5, 16, kwh])


def test_energy_is_a_thing_where_the_machine_runs_for_some_time_and_an_npu_where_it_has_a_price_or_a_power(
    tmp_path: Path,
) -> None:
    book = book_of(tmp_path, BOOK)
    parts = {"link x*": 640.0, "switch": 6.0}
    assert told(book, OwnershipTerms(Price(0.0, 0.0), 0.0, 0.25), 64) == parts
    assert told(book, OwnershipTerms(Price(0.0, 5.0), 0.0, 0.25), 64) == parts | {"NPU h100": 64.0}
    assert told(book, OwnershipTerms(Price(5.0, 0.0), 0.0, 0.25), 64) == parts | {"NPU h100": 64.0}
    assert told(book, OwnershipTerms(Price(0.0, 0.0), 1.0, 0.25), 64) == parts | {"kWh": pytest.approx(0.73 * 8760)}


def test_a_price_of_one_system_has_the_name_of_it_and_one_of_every_system_has_none(tmp_path: Path) -> None:
    free, own = OwnershipTerms(Price(0.0, 0.0), 0.0, 0.0), '[ub-mesh.parts]\n"switch" = { dollars = 70 }\n'
    assert [*told(book_of(tmp_path, BOOK + own), free)] == ["link x*", "switch of ub-mesh"]
    same = '[ub-mesh.parts]\n"switch" = { dollars = [100, 300], watts = [10, 20] }\n'
    assert [*told(book_of(tmp_path, BOOK + same), free)] == ["link x*", "switch"]
    alone = BOOK.replace("any", "ub-mesh")
    assert [*told(book_of(tmp_path, alone), free)] == ["link x* of ub-mesh", "switch of ub-mesh"]


def test_npus_are_paid_for_by_the_book_or_by_the_terms(tmp_path: Path) -> None:
    book = book_of(tmp_path, BOOK + '"NPU" = { dollars = 7 }\n')
    with pytest.raises(InputError, match="design: the book mine has a price for an NPU; leave out --npu"):
        amounts_of(RACK, 16, "h100", book, OwnershipTerms(Price(0.0, 1.0), 0.0, 0.0))
    assert told(book, OwnershipTerms(Price(0.0, 0.0), 0.0, 0.0)) == {"NPU": 16, "link x*": 160, "switch": 1.5}


def test_points_of_different_things_are_summed_at_the_lowest_the_middle_and_the_highest_prices() -> None:
    cable = PricedThing("cable", Price(2.0, 1.0), Price(6.0, 2.0))
    switch = PricedThing("switch", Price(100.0, 30.0), Price(100.0, 50.0))
    lid = PricedThing("lid", Price(7.0, 0.0), Price(9.0, 0.0))
    found = PriceList.of([{switch: 3.0}, {cable: 5.0, switch: 2.0}, {}, {lid: 4.0, cable: 1.0}])
    assert found.things == (switch, cable, lid)
    assert found.amounts.tolist() == [[3, 0, 0], [2, 5, 0], [0, 0, 0], [0, 1, 4]]
    assert found.prices("high").tolist() == [100, 6, 9]
    assert found.dollars("low").tolist() == [300, 210, 0, 30]
    assert found.dollars("middle").tolist() == [300, 220, 0, 36]
    assert found.dollars("high").tolist() == [300, 230, 0, 42]
    assert found.watts().tolist() == [120, 87.5, 0, 1.5]
