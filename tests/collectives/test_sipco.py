"""The paper's worked examples, rank by rank, and what each neighbour link carries."""

from collections import Counter

import numpy as np
import pytest

from collectives import sipco
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.units import TICKS_PER_S, ticks

# rank: what it sends in each step; `l>k:g.c` is chunk c of group g to the level-l neighbour with digit k
ALL_OF_2_2 = {
    "00": ("0>1:0.1 1>1:1.1", "0>1:1.0 1>1:0.0", "0>1:0.0 1>1:1.0"),
    "01": ("0>1:0.1 1>0:1.0", "0>1:1.1 1>0:0.0", "0>1:0.0 1>0:1.1"),
    "10": ("0>0:0.0 1>1:1.1", "0>0:1.0 1>1:0.1", "0>0:0.1 1>1:1.0"),
    "11": ("0>0:0.0 1>0:1.0", "0>0:1.1 1>0:0.1", "0>0:0.1 1>0:1.1"),
}
OTHERS = [
    ((3, 3), "12", ("0>0:0.0 0>2:0.2 1>0:1.0 1>1:1.1", "0>0:1.2 0>2:1.2 1>0:0.1 1>1:0.1", "0>0:0.1 0>2:0.1 1>0:1.2 1>1:1.2")),
    (
        (4, 4),
        "31",
        (
            "0>0:0.0 0>1:0.1 0>2:0.2 1>0:1.0 1>2:1.2 1>3:1.3",
            "0>0:1.1 0>1:1.1 0>2:1.1 1>0:0.3 1>2:0.3 1>3:0.3",
            "0>0:0.3 0>1:0.3 0>2:0.3 1>0:1.1 1>2:1.1 1>3:1.1",
        ),
    ),
    (
        (2, 2, 2),
        "011",
        ("0>1:0.1 1>0:1.0 2>0:2.0", "0>1:1.1 1>0:2.1 2>0:0.0", "0>1:2.1 1>0:0.0 2>0:1.1", "0>1:0.0 1>0:1.1 2>0:2.1"),
    ),
]
EXAMPLES = [((2, 2), *example) for example in ALL_OF_2_2.items()] + OTHERS


def sent_by(dims: tuple[int, ...], rank: str) -> tuple[str, ...]:
    built, digits = sipco.all_reduce(dims), tuple(map(int, rank))
    me = int(np.ravel_multi_index(digits, dims, order="F"))  # level 0 is the fastest

    def words(rows: slice) -> str:
        found = []
        for dst, slot, level in zip(built.dst[rows], built.slot[rows], built.channel[rows], strict=True):
            to = np.unravel_index(dst, dims, order="F")
            assert [i for i in range(len(dims)) if to[i] != digits[i]] == [level]
            found.append(f"{level}>{to[level]}:{slot // dims[0]}.{slot % dims[0]}")
        return " ".join(sorted(found))

    mine = [np.arange(rows.start, rows.stop)[built.src[rows] == me] for rows in built.rounds()]
    return tuple(words(rows) for rows in mine)


@pytest.mark.parametrize(("dims", "rank", "steps"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_rank_sends_what_the_worked_example_says(dims, rank, steps):
    assert sent_by(dims, rank) == steps


@pytest.mark.parametrize("dims", [(2, 2), (3, 3), (5, 5), (2, 2, 2), (3, 3, 3), (2, 2, 2, 2), (6,)])
def test_each_link_to_a_neighbour_carries_one_chunk_a_step_and_all_but_the_last_add(dims):
    built, (r, L) = sipco.all_reduce(dims), (dims[0], len(dims))
    assert (built.n_rounds, built.n_slots) == (L + 1, r * L)
    for step, rows in enumerate(built.rounds()):
        links = Counter(zip(built.src[rows].tolist(), built.dst[rows].tolist(), strict=True))
        assert len(links) == r**L * L * (r - 1)
        assert set(links.values()) == {1}
        assert set(built.reduce[rows].tolist()) == {step < L}


@pytest.mark.parametrize(("r", "L"), [(2, 2), (3, 2), (4, 2), (8, 2), (2, 3), (3, 3), (2, 4)])
def test_a_step_costs_a_start_and_all_chunks_of_a_group_but_one(r, L):
    """(L + 1)(a + (r - 1) n/(rL) b), with a = 2 us, n = 1,728 kB and a port of 1 GB/s a level."""
    built, a, n, b = sipco.all_reduce((r,) * L), 2e-6, 1_728_000, 1e-9
    fabric = ideal(built, "channel", bandwidth_Bps=1 / b, latency_fs=ticks(a))
    piece = lower(FabricJob(built, np.full(r * L, n // (r * L)), fabric, np.arange(r**L, dtype=np.int32)))
    assert run_graph(piece.graph).end_s == pytest.approx((L + 1) * (a + (r - 1) * n / (r * L) * b), rel=1e-9)


def on_sipac(r, L, latency="2us", size=1_728_000):
    """Seconds on a built SiPAC whose links to neighbours are 2 wavelengths of 4 GB/s each."""
    built = build_topology(f"sipac:r={r},L={L},w={2 * L * (r - 1)},latency={latency}")
    ranks = np.arange(r**L, dtype=np.int32)
    found = time_collective(
        CollectiveJob(operation("all_reduce", r**L), sipco.all_reduce((r,) * L), size // 4, 4, built, ranks)
    )
    return found.end_fs.max() / TICKS_PER_S


ON_SIPAC = pytest.mark.parametrize(("r", "L"), [(2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4)])


@ON_SIPAC
def test_on_sipac_it_takes_a_latency_for_each_of_its_steps_which_are_one_more_than_the_levels(r, L):
    assert (on_sipac(r, L, "5us") - on_sipac(r, L, "2us")) / 3e-6 == pytest.approx(L + 1, rel=1e-9)


@ON_SIPAC
def test_on_sipac_each_link_carries_one_chunk_a_step(r, L):
    more = on_sipac(r, L, size=2 * 1_728_000) - on_sipac(r, L)
    assert more == pytest.approx((L + 1) * 1_728_000 / (r * L) / 8e9, rel=1e-9)


@pytest.mark.parametrize(("r", "L", "ratio"), [(2, 2, 1.0), (3, 2, 1.125), (4, 2, 1.2), (2, 3, 8 / 7)])
def test_a_rank_sends_more_than_the_least_and_the_more_so_the_larger_r(r, L, ratio):
    built, least = sipco.all_reduce((r,) * L), 2 * (1 - r**-L)
    assert np.bincount(built.src) / (r * L) / least == pytest.approx(ratio)


def test_ranks_that_are_no_power_are_told_which_are_near_and_a_grid_of_unequal_dims_which_works():
    found = algorithm("all_reduce", "sipco")
    assert found.fit(16) == (4, 4)
    assert found.fit(16, (2, 2, 2, 2)) == (2, 2, 2, 2)
    with pytest.raises(InputError, match=r"sipco: does not take shape 2x8; 4x4 works"):
        found.check((2, 8))
    with pytest.raises(InputError, match=r"sipco: cannot run on 10 ranks; nearest that work: 8, 9"):
        found.fit(10)
