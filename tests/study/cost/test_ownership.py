"""Total cost of ownership, held to sums by hand."""

import pytest

from emu.errors import InputError
from emu.study.cost.network_cost import OwnershipTerms, cost, ownership_cost
from emu.study.cost.price_book import Price, read_book
from emu.topology.catalogue import build_topology

BOOK = """
[any]
free = ["NPU", "cable"]
[any.parts]
"switch" = { dollars = 1000, watts = 500 }
"""


def bought(tmp_path, text=BOOK):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return cost(build_topology("big-switch:n=8"), read_book(path, "mine.toml"))


def test_a_machine_costs_its_network_its_npus_and_their_energy(tmp_path):
    found = ownership_cost(bought(tmp_path), OwnershipTerms(Price(300, 100), 2, 0.1))
    assert found.capex_dollars == 1000 + 8 * 300
    assert found.opex_dollars == pytest.approx((500 + 8 * 100) / 1000 * 8760 * 2 * 0.1)
    assert found.tco_dollars == found.capex_dollars + found.opex_dollars
    assert found.per_second_and_dollar(6800, share=0.5) == pytest.approx(6800 / (found.tco_dollars / 2))


def test_lost_npus_are_paid_for_beside_the_network(tmp_path):
    assert bought(tmp_path).aggregate_dollars_per_npu(0.9, 300) == pytest.approx(1000 / 8 + 0.1 * 300)


def test_npus_are_paid_for_once_and_something_costs_something(tmp_path):
    with pytest.raises(InputError, match="cost: the book mine has a price for an NPU; leave out --npu"):
        ownership_cost(bought(tmp_path, BOOK + '"NPU" = { dollars = 7 }\n'), OwnershipTerms(Price(300, 0), 0, 0.1))
    with pytest.raises(InputError, match="cost: nothing of big-switch:n=8 costs anything; give prices above 0, or --npu"):
        ownership_cost(bought(tmp_path, BOOK.replace("1000", "0")), OwnershipTerms(Price(0, 0), 0, 0.1))
