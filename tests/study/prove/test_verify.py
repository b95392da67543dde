from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collectives import binomial, ring
from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.study.prove.verify import RANKS, roots_of, shapes_of, verify

EVERY = pytest.mark.parametrize("found", [pytest.param(a, id=key) for key, a in ALGORITHMS])


def hold(found, cases):
    for row, (_, shape) in zip(verify(cases), cases, strict=True):
        assert (row.proof, row.ok) == ("ok", True), row
        assert row.claim == ("equal" if found.claim.exact(shape) else "bound")
        assert row.time_s <= row.claim_s * (1 + 1e-9)


@EVERY
def test_every_algorithm_is_proved_and_keeps_its_claim(found):
    """From 31 ranks on only the best shape is tried: all shapes take longer than those of all fewer ranks together."""
    hold(found, [*shapes_of([found], RANKS[:-3]), *(case for n in RANKS[-3:] for case in shapes_of([found], [n])[:1])])


@pytest.mark.slow
@EVERY
def test_every_algorithm_is_proved_and_keeps_its_claim_on_every_shape_of_the_most_ranks(found):
    hold(found, shapes_of([found], RANKS[-3:]))


def test_the_default_ranks_are_all_small_numbers_and_three_large_ones():
    assert list(RANKS) == [*range(1, 18), 31, 32, 64]


def test_rows_come_by_algorithm_then_by_ranks():
    found = [algorithm("all_reduce", "ring"), algorithm("gather", "binomial")]
    rows = [(r.operation, r.algorithm, r.ranks, r.shape) for r in verify(shapes_of(found, (2, 3)))]
    assert rows == [(a.operation, a.name, n, (n,)) for a in found for n in (2, 3)]


def test_rooted_operations_are_tried_from_the_first_the_last_and_a_middle_rank():
    assert roots_of("gather", 9) == [0, 4, 8]
    assert roots_of("gather", 1) == [0]
    assert roots_of("all_reduce", 9) == [0]


def test_times_are_those_of_the_closed_form():
    """8 ranks in a ring: 14 latencies and 14 bodies of an eighth of a block, 1 ms each."""
    (row,) = verify(shapes_of([algorithm("all_reduce", "ring")], [8]))
    assert row.time_s == pytest.approx(14e-3 + 14e-3 / 8, rel=1e-9)
    assert row.claim_s == pytest.approx(row.time_s, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize(
    ("name", "fabric", "alpha", "beta"),
    [
        ("direct", "link", lambda _: 2, lambda n: Fraction(2, n)),
        ("direct", "pair", lambda _: 2, lambda n: Fraction(2, n)),
        ("direct", "channel", lambda _: 2, lambda n: Fraction(2 * (n - 1), n)),
        ("ring", "link", lambda n: 2 * (n - 1), lambda n: Fraction(2 * (n - 1), n)),
    ],
)
def test_an_all_reduce_keeps_what_is_claimed_of_it_on_links_of_its_own(name, fabric, alpha, beta, n):
    found = replace(algorithm("all_reduce", name), claim=Claim(fabric, alpha=alpha, beta=beta))
    (row,) = verify(shapes_of([found], [n]))
    assert (row.claim, row.ok) == ("equal", True)


def test_a_claim_holds_for_parts_of_unequal_shares():
    """Two ranks swap a block in parts of 1 to 3 on channels of their own: the larger part takes three quarters."""

    def build(n: int) -> Schedule:
        return Schedule.build(2, 2, [Sends([[0], [1]], [[1], [0]], [0, 1], reduce=True, channel=[0, 1])], shares=(1, 3))

    claim = Claim("channel", alpha=lambda _: 1, beta=lambda _: Fraction(3, 4))
    (row,) = verify(shapes_of([replace(algorithm("all_reduce", "ring"), build=build, claim=claim)], [2]))
    assert (row.claim, row.ok) == ("equal", True)


def by_node(dims: tuple[int, ...], src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Class 1 between nodes, which are the first digit."""
    return (src // dims[1] != dst // dims[1]).astype(np.int64)


IN_TWO_CLASSES = Claim(
    "rank",
    alpha=lambda d: (2 * (d[1] - 1), 2 * (d[0] - 1)),
    beta=lambda d: (Fraction(2 * (d[1] - 1), d[1]), Fraction(2 * (d[0] - 1), d[0] * d[1])),
    link_class=by_node,
)


@pytest.mark.parametrize("dims", [(2, 4), (3, 3), (4, 2)])
def test_a_claim_of_two_link_classes_is_kept_on_ports_of_two_rates_and_latencies(dims):
    """Inside nodes 1 ms of latency and 1 ms a block, between them 3 ms and 4 ms."""
    (row,) = verify([(replace(algorithm("all_reduce", "hierarchical-ring"), claim=IN_TWO_CLASSES), dims)])
    assert (row.claim, row.ok) == ("equal", True)
    nodes, n = dims
    blocks = 2 * (n - 1) / n + 4 * 2 * (nodes - 1) / (nodes * n)
    assert row.time_s == pytest.approx((2 * (n - 1) + 3 * 2 * (nodes - 1) + blocks) / 1000, rel=1e-9)


@pytest.mark.parametrize(
    "mixed_up",
    [
        {"alpha": lambda d: IN_TWO_CLASSES.alpha(d)[::-1]},
        {"beta": lambda d: IN_TWO_CLASSES.beta(d)[::-1]},
        {"link_class": lambda d, src, dst: 1 - by_node(d, src, dst)},
        {"link_class": lambda d, src, dst: by_node(d[::-1], src, dst)},
    ],
    ids=["latencies", "bytes", "classes", "nodes"],
)
def test_a_claim_that_mixes_its_link_classes_up_is_not_kept(mixed_up):
    found = replace(algorithm("all_reduce", "hierarchical-ring"), claim=replace(IN_TWO_CLASSES, **mixed_up))
    (row,) = verify([(found, (2, 4))])
    assert row.proof == "ok"
    assert not row.ok
    assert " ms, and the schedule takes " in row.claim
    assert row.claim.endswith(" ms, where a is 1, 3, ... ms and a block takes 1, 4, ... ms")


def named(found: Algorithm, **changes: object) -> Algorithm:
    return replace(found, name="test-changed", **changes)


def test_an_algorithm_that_drops_a_send_is_a_row_that_says_so():
    def build(n: int) -> Schedule:
        whole = ring.all_reduce(n)
        return Schedule.build(
            n, n, [Sends(whole.src[r][1:], whole.dst[r][1:], whole.slot[r][1:], whole.reduce[r][1:]) for r in whole.rounds()]
        )

    (row,) = verify(shapes_of([named(algorithm("all_reduce", "ring"), build=build)], [4]))
    assert not row.ok
    assert row.proof.startswith("proof: ")
    assert row.claim == ""


def test_an_algorithm_whose_bits_differ_between_ranks_is_refused():
    """Every rank adds the next ranks' values one after another, each beginning with its own."""

    def build(n: int) -> Schedule:
        rank = np.arange(n)
        keep = [Sends(rank, rank + n, 0)]
        return Schedule.build(
            n, 1, [keep, *([Sends((rank + t) % n + n, rank, 0, reduce=True)] for t in range(1, n))], helpers=n
        )

    (row,) = verify(shapes_of([named(algorithm("all_reduce", "ring"), build=build)], [3]))
    assert "was summed in another order" in row.proof


def test_an_algorithm_that_does_not_take_so_many_ranks_is_a_row_that_says_so():
    def build(n: int) -> Schedule:
        raise InputError(f"test-changed: ranks must be a power of two, got {n}")

    (row,) = verify(shapes_of([named(algorithm("all_reduce", "ring"), build=build)], [3]))
    assert row.proof == "test-changed: ranks must be a power of two, got 3"
    assert not row.ok


def test_a_claim_that_is_not_kept_is_told_with_both_times():
    claim = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(2 * (n - 1), n))
    (row,) = verify(shapes_of([named(algorithm("all_reduce", "ring"), claim=claim)], [4]))
    assert row.proof == "ok"
    said = "the claim is 3 a + 3/2 V/B, and the schedule takes 6 a + 3/2 V/B: its alpha is 3 too small"
    assert row.claim == said
    assert not row.ok


def test_what_is_faster_than_an_equality_claims_breaks_it_and_keeps_a_bound():
    found = algorithm("broadcast", "binomial")
    slower = {"fabric": "rank", "alpha": lambda _: 9, "beta": lambda _: Fraction(9)}
    changed = named(found, build=binomial.broadcast, claim=Claim(**slower))
    (row,) = verify(shapes_of([changed], [4]))
    said = "the claim is 9 a + 9 V/B, and the schedule takes 2 a + 2 V/B: its alpha is 7 too large and its beta is "
    assert row.claim == f"{said}7 too large"
    (row,) = verify(shapes_of([replace(changed, claim=Claim(**slower, exact=lambda _: False))], [4]))
    assert (row.claim, row.ok) == ("bound", True)


def test_a_bound_that_is_not_kept_is_told():
    claim = Claim("rank", alpha=lambda _: 1, beta=lambda _: Fraction(0), exact=lambda _: False)
    (row,) = verify(shapes_of([named(algorithm("all_reduce", "ring"), claim=claim)], [4]))
    said = "the claim is at most 1 a + 0 V/B, and the schedule takes 6 a + 3/2 V/B"
    assert row.claim == f"{said}: its alpha is 5 too small and its beta is 3/2 too small"
