"""Every collective in the catalogue keeps these laws: filing one more adds its tests."""

import re
import sys
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.integers import check_integers
from emu.collective.operation import ROOTED, divide_blocks, operation
from emu.collective.proof import prove
from emu.collective.shape import Shape

NS = (1, 2, 3, 5, 8, 13, 17, 32)
ON_PORTS = pytest.mark.parametrize("found", [pytest.param(a, id=key) for key, a in ALGORITHMS if a.claim.fabric == "rank"])
EVERY = pytest.mark.parametrize("found", [pytest.param(a, id=key) for key, a in ALGORITHMS])


def roots(found: Algorithm, n: int) -> list[int]:
    return sorted({0, n // 2, n - 1}) if found.operation in ROOTED else [0]


def some_shapes(found: Algorithm, n: int) -> list[Shape]:
    return list(found.shapes(n))[:6]


def shapes_of_each_number(found: Algorithm) -> Iterator[tuple[int, Shape]]:
    return ((n, shape) for n in NS for shape in some_shapes(found, n))


@pytest.mark.parametrize(
    ("found", "n"), [pytest.param(a, n, id=f"{n}-{key}") for n in NS for key, a in ALGORITHMS if some_shapes(a, n)]
)
def test_it_does_its_operation_with_the_same_bits_on_every_rank(found: Algorithm, n: int):
    for shape, root in product(some_shapes(found, n), roots(found, n)):
        built, wanted = found.schedule(shape, root), operation(found.operation, n, root)
        assert prove(built, wanted).uniform
        check_integers(built, wanted, seed=n)


@EVERY
def test_one_rank_has_nothing_to_send(found: Algorithm):
    assert all(found.build(shape).n_rows == 0 for shape in some_shapes(found, 1))


@EVERY
def test_it_is_built_the_same_every_time(found: Algorithm):
    for _, shape in shapes_of_each_number(found):
        assert found.build(shape).digest() == found.build(shape).digest(), shape


@EVERY
def test_parts_of_any_size_are_cut_from_its_slots(found: Algorithm):
    """Where a block has fewer elements than parts, some slots are empty, which must work too."""
    for n, shape in shapes_of_each_number(found):
        if n not in (2, 5, 8):
            continue
        wanted, built = operation(found.operation, n), found.build(shape)
        for size in (0, 1, n - 1, n * n + 1):
            counts = wanted.block_counts(size * wanted.count_step)
            slots = divide_blocks(counts, built.n_slots, built.shares)
            held = np.bincount(slots.block, weights=slots.count, minlength=len(counts)).tolist()
            assert held == counts.tolist(), (shape, size)


@ON_PORTS
def test_it_claims_no_less_than_its_ports_must_carry(found: Algorithm):
    """The share of the size that the busiest rank sends or receives is a lower bound on beta with one port each way."""
    for n, shape in shapes_of_each_number(found):
        wanted, built = operation(found.operation, n), found.build(shape).expand()
        parts = built.n_slots // wanted.n_blocks
        if built.shares or built.helpers:
            continue
        sent = built.src != built.dst  # the others stay within a rank
        busiest = max(int(np.bincount(column[sent], minlength=1).max(initial=0)) for column in (built.src, built.dst))
        assert found.claim.beta(shape) * wanted.blocks_in_size * parts >= busiest, shape
        assert found.claim.alpha(shape) <= built.n_rounds, shape


@EVERY
def test_it_says_whether_switches_must_add_for_it_before_it_is_built(found: Algorithm):
    assert found.needs_adding == any(found.build(shape).helpers for _, shape in shapes_of_each_number(found))


@EVERY
def test_its_name_can_be_typed_and_its_text_says_what_it_does_and_where_it_is_from(found: Algorithm):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found.name)
    assert found.summary.endswith(".")
    module = sys.modules.get(found.build.__module__)
    assert module is None or re.search(r"Source: .*\b(19|20)\d\d\b", " ".join((module.__doc__ or "").split()))
