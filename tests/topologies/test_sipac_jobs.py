import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import sipco
from emu.collective.shape import PartialGrid
from emu.errors import InputError
from emu.topology.catalogue import build_topology
from tests.topologies.sipac_jobs import near_of, set_up, table_of
from topologies.sipac.assignment import distance, heuristic, initial, moves, program, reconfigure, scale_traffic, sequential
from topologies.sipac.levels import Levels, Lines, Neighbours, comb_lines, uniform

# Wavelengths for jobs


def _random_traffic(rng, near, *, both_ways):
    table = rng.random((near.n, near.n)) * 5
    return (table + both_ways * table.T)[near.src, near.dst]


@pytest.mark.parametrize("both_ways", [True, False])
def test_rounding_comes_as_near_as_the_program_where_four_cus_have_three_wavelengths(both_ways):
    """And not where traffic is not scaled: then it fills what the program leaves dark."""
    rng, unscaled = np.random.default_rng(0), 0
    _, near = near_of(2, 2)
    dark = np.zeros(len(near.src), int)
    for _ in range(40):
        traffic = _random_traffic(rng, near, both_ways=both_ways)
        t = scale_traffic(near, traffic, 3)
        assert np.concatenate(near.sums(t)) == pytest.approx(3)
        assert distance(t, heuristic(near, t, 3, dark)) == pytest.approx(distance(t, program("", near, t, 3, dark)))
        by_both = [distance(traffic, heuristic(near, traffic, 3, dark)), distance(traffic, program("", near, traffic, 3, dark))]
        unscaled += by_both[0] > by_both[1] + 1e-6
    assert unscaled > 10


def test_scaling_multiplies_what_each_cu_sends_and_receives_by_a_factor_of_its_own_until_all_sums_are_w():
    """By rows and columns in turn, as Sinkhorn does, the same comes out."""
    _, near = near_of(4, 1)
    table = np.random.default_rng(2).random((4, 4)) * (1 - np.eye(4))
    found = scale_traffic(near, table[near.src, near.dst], 10)
    for _ in range(2000):
        table *= 10 / table.sum(axis=1, keepdims=True)
        table *= 10 / table.sum(axis=0)
    assert found == pytest.approx(table[near.src, near.dst], rel=1e-6)


def test_where_sums_cannot_be_w_none_is_more():
    """CU 0 is the only neighbour of 1 and of 2."""
    _, near = near_of(2, 2)
    star = near.of((near.src < 3) & (near.dst < 3))
    assert scale_traffic(star, np.ones(4), 6) == pytest.approx(3)


@pytest.mark.parametrize(("r", "L", "most"), [(2, 3, 20), (4, 2, 30), (6, 2, 40), (8, 2, 40)])
def test_of_equal_links_the_heuristic_gives_the_spare_wavelengths_by_turns_as_the_static_system_does(r, L, most):
    for w in range(L * (r - 1), most):
        levels, near = near_of(r, L, w)
        t = scale_traffic(near, np.ones(len(near.src)), w)
        assert np.array_equal(heuristic(near, t, w, np.zeros(len(t), int)), uniform(levels, near))


@pytest.mark.parametrize(("w", "odd_one"), [(4, 1), (5, -1)])
def test_of_equal_links_the_heuristic_takes_those_that_are_set_up(w, odd_one):
    """Three neighbours share four or five: one of them has one more, or one less."""
    _, near = near_of(4, 1)
    t = scale_traffic(near, np.ones(len(near.src)), w)
    for turn in range(3):
        before = np.rint(t).astype(int) + odd_one * (near.turn == turn)
        assert np.array_equal(heuristic(near, t, w, before), before)


def test_the_program_is_the_optimum_and_of_all_optima_moves_fewest():
    """All assignments are tried."""
    _, near = near_of(2, 2)
    every = np.array(list(itertools.product(range(3), repeat=8)))
    sums = np.stack([[near.sums(row) for row in every]]).reshape(len(every), -1)
    every = every[(sums <= 2).all(axis=1)]
    rng = np.random.default_rng(1)
    for case in range(12):
        t = scale_traffic(near, rng.integers(1, 4, 8) if case % 2 else np.ones(8), 2)
        t = t + (0.5 if case % 3 == 0 else 0)  # where many are equally near
        before = every[rng.integers(len(every))]
        cost = ((every - t) ** 2).sum(axis=1)
        moved = np.maximum(every - before, 0).sum(axis=1) + np.maximum(before - every, 0).sum(axis=1)
        found = program("", near, t, 2, before)
        assert distance(t, found) == pytest.approx(cost.min())
        assert np.abs(found - before).sum() == moved[cost < cost.min() + 1e-9].min()


@pytest.mark.parametrize("by", ["heuristic", "program"])
def test_two_jobs_of_two_have_all_wavelengths_on_the_link_within_them(by):
    """fs-ilp-2x2."""
    found = table_of(set_up(2, 2, 2, [2, 2], by))
    expected = np.zeros((4, 4), int)
    expected[[0, 1, 2, 3], [1, 0, 3, 2]] = 2
    assert np.array_equal(found, expected)
    rates = build_topology(f"flex-sipac:r=2,L=2,w=2,jobs=2+2,by={by}").links.bandwidth_Bps
    assert (rates == 2 * build_topology("sipac:r=2,L=2,w=2").links.bandwidth_Bps[0]).all()


@pytest.mark.parametrize("by", ["heuristic", "program"])
def test_jobs_of_eight_four_and_four_have_three_and_four_wavelengths_a_link(by):
    found = table_of(set_up(4, 2, 12, [8, 4, 4], by))
    assert {j: found[0, j] for j in np.flatnonzero(found[0])} == {1: 3, 2: 3, 3: 3, 4: 3}
    assert {j: found[8, j] for j in np.flatnonzero(found[8])} == {9: 4, 10: 4, 11: 4}
    assert (found.sum(axis=0) == 12).all()
    assert (found.sum(axis=1) == 12).all()


def test_flex_sipco_s_own_load_moves_wavelengths_to_the_links_that_carry_transit_chunks():
    part = PartialGrid((4, 4), tuple(range(8)))
    built = sipco.flex_all_reduce(part)
    traffic = np.zeros((16, 16))
    np.add.at(traffic, (built.src, built.dst), 1)
    assert traffic[0, [1, 2, 3, 4]].tolist() == [3, 4, 4, 3]
    found = [table_of(set_up(4, 2, 14, [8], by, traffic=traffic))[:8, :8] for by in ("heuristic", "program")]
    assert np.array_equal(found[0], found[0].T)
    assert found[0][0, 2] > found[0][0, 1]
    near = set_up(4, 2, 14, [8]).near
    within = near.of((near.src < 8) & (near.dst < 8))
    t = scale_traffic(within, traffic[within.src, within.dst], 14)
    cost = [distance(t, table[within.src, within.dst]) for table in found]
    assert cost[1] <= cost[0] <= cost[1] + 2


@given(
    st.sampled_from([(2, 2), (2, 3), (3, 2), (4, 2), (5, 2), (3, 3)]),
    st.integers(0, 30),
    st.lists(st.integers(1, 5), max_size=5),
    st.integers(0, 1),
)
@settings(max_examples=40)
def test_no_cu_sends_or_receives_more_than_w_and_what_is_dark_serves_no_two_with_room(shape, more, sizes, keep):
    (r, L), n = shape, shape[0] ** shape[1]
    w = L * (r - 1) + more
    sizes = [size * r for size in sizes if size * r <= n]
    sizes = [size for end, size in zip(np.cumsum(sizes), sizes, strict=True) if end <= n and n % size == 0][:2]
    sizes = sorted(sizes, reverse=True)
    found = set_up(r, L, w, sizes, keep=keep)
    out, into = found.near.sums(found.wavelengths)
    assert max(out.max(), into.max()) <= w
    assert found.wavelengths.min() >= keep
    within = (found.job[found.near.src] == found.job[found.near.dst]) & (found.job[found.near.src] >= 0)
    assert not ((out[found.near.src] < w) & (into[found.near.dst] < w) & within).any()
    between = found.job[found.near.src] != found.job[found.near.dst]
    assert (found.wavelengths[between] == keep).all()
    table = table_of(found)
    assert np.array_equal(table, table.T)


def test_the_heuristic_gives_out_all_wavelengths_and_the_program_none_that_brings_no_link_nearer():
    """Five neighbours share eleven: 2.2 each."""
    used = [table_of(set_up(4, 2, 11, [12, 4], by))[:12].sum(axis=1) for by in ("heuristic", "program")]
    assert (used[0] == 11).all()
    assert (used[1] == 10).all()


def test_a_cu_whose_neighbours_are_few_leaves_what_they_cannot_take():
    """CU 0 is between 1 and 2, so that each of the two gets half of it."""
    table = table_of(set_up(2, 2, 6, [3]))
    assert np.array_equal(table[:3, :3], [[0, 3, 3], [3, 0, 0], [3, 0, 0]])


def test_routes_of_a_job_stay_within_it_whatever_its_shape():
    topology = build_topology("flex-sipac:r=4,L=2,jobs=6+10")
    for cus in (range(6), range(6, 16)):
        pairs = np.array(list(itertools.permutations(cus, 2)))
        routes = topology.routes(*pairs.T, np.zeros(len(pairs)))
        assert np.isin(topology.links.dst[routes.link], cus).all()
        assert routes.hops.max() == 2


@pytest.mark.parametrize("by", ["heuristic", "program"])
def test_where_all_is_kept_or_no_job_runs_nothing_is_steered(by):
    static = initial(Levels("flex-sipac", 3, 2, 4), keep=1)
    for jobs in ([], [range(3)], [range(9)]):
        assert moves(static, reconfigure(static, jobs, by=by)) == 0
    assert (reconfigure(static, [range(9)], by=by).wavelengths == 1).all()


def test_no_light_leads_from_job_to_job_unless_all_links_keep_some():
    apart = build_topology("flex-sipac:r=4,L=2,jobs=8+8")
    with pytest.raises(InputError) as refused:
        apart.routes(np.array([0]), np.array([15]), np.array([0]))
    assert str(refused.value) == "flex-sipac:r=4,L=2,jobs=8+8: no route from node 0 to node 15: no links join them"
    joined = build_topology("flex-sipac:r=4,L=2,jobs=8+8,keep=2")
    rates = joined.links.bandwidth_Bps[joined.links.src // 8 != joined.links.dst // 8]
    assert (rates == 2 * 4e9).all()
    assert joined.routes(np.array([0]), np.array([15]), np.array([0])).hops.tolist() == [2]
    assert build_topology("flex-sipac:r=4,L=2,jobs=2+4,keep=1").n_npus == 16  # no job need hold together then


# Reconfiguration


@pytest.mark.parametrize("by", ["heuristic", "program"])
def test_a_job_that_stays_keeps_its_wavelengths_and_nothing_moves_twice(by):
    first = set_up(4, 2, 15, [8, 4, 4], by)
    again = reconfigure(first, sequential([8, 4, 4]), by=by)
    assert moves(first, again) == moves(again, first) == 0
    then = reconfigure(first, [range(8), range(8, 16)], by=by)
    stays = (first.near.src < 8) & (first.near.dst < 8)
    assert np.array_equal(first.wavelengths[stays], then.wavelengths[stays])
    assert moves(first, then) == np.maximum(table_of(then) - table_of(first), 0)[8:, 8:].sum() > 0


def test_cus_in_no_job_keep_theirs_among_themselves_and_none_to_the_others():
    static, now = initial(Levels("flex-sipac", 4, 2, 12)), set_up(4, 2, 12, [8])
    before, after = table_of(static), table_of(now)
    assert np.array_equal(before[8:, 8:], after[8:, 8:])
    assert not after[:8, 8:].any()
    assert moves(static, now) == np.maximum(after - before, 0).sum() == 8 * (3 * 1 + 1)
    assert moves(static, static) == 0


def _built(line):
    """{(CU, CU): wavelengths} of the links of a built system."""
    links = build_topology(f"flex-sipac:r=4,L=2,{line}").links
    counts = np.rint(links.bandwidth_Bps / 4e9).astype(int).tolist()
    return Counter(dict(zip(zip(links.src.tolist(), links.dst.tolist(), strict=True), counts, strict=True)))


@pytest.mark.parametrize(("line", "kept"), [("w=15,jobs=8+4+4", 208), ("w=15,jobs=8+4", 208), ("w=15,jobs=16", 156)])
def test_a_topology_tells_what_turns_when_its_jobs_come_after_others(line, kept):
    after, there = f"{line},before=8+8", _built("w=15,jobs=8+8")
    now = _built(after)
    said = build_topology(f"flex-sipac:r=4,L=2,{after}").assumptions[-1]
    turned = (now - there).total()
    assert f"after 8+8 CUs, {turned} of {now.total()} wavelengths turn to another link, and {kept} stay" in said
    assert 0 < kept <= now.total() - turned


def test_the_first_jobs_have_nothing_before_them_and_cus_that_become_idle_keep_what_they_had():
    assert _built("w=12,jobs=8+4,before=none") == _built("w=12,jobs=8+4")
    left = _built("w=12,jobs=8,before=8+8")
    assert {pair: n for pair, n in left.items() if min(pair) >= 8} == {
        pair: n for pair, n in _built("w=12,jobs=8+8").items() if min(pair) >= 8
    }
    with pytest.raises(InputError, match=r"CUs of all jobs must be at most 16 \(r\^L\), got 20"):
        build_topology("flex-sipac:r=4,L=2,jobs=8,before=12+8")


@given(st.integers(2, 8), st.integers(1, 12), st.integers(0, 2**31))
@settings(max_examples=40)
def test_a_wss_needs_as_many_wavelengths_as_its_busiest_port_and_has_none_twice_at_a_port(r, most, seed):
    """fs-color: Konig's theorem, which DSatur does not always reach."""
    demand = np.random.default_rng(seed).integers(0, most + 1, (r, r))
    src, dst = np.nonzero(demand)
    near = Neighbours(r, src, dst, np.zeros(len(src), int))
    degree = int(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    found = comb_lines(near, demand[src, dst], degree)
    assert np.array_equal(np.bincount(found.link, minlength=len(src)), demand[src, dst])
    assert found.line.max(initial=0) < max(1, degree)
    for end in (src, dst):
        assert len(np.unique(np.stack((end[found.link], found.line)), axis=1).T) == len(found.line)


def test_a_comb_s_lines_leave_by_one_port_each_and_unchanged_jobs_keep_them():
    first = set_up(4, 2, 15, [8, 4, 4])
    drawn = comb_lines(first.near, first.wavelengths, 15)
    lit = Lines(drawn.link, 14 - drawn.line)  # such as nobody would be given anew
    then = reconfigure(first, [range(8), range(8, 16)])
    after = comb_lines(first.near, then.wavelengths, 15, lit)
    for end in (first.near.src, first.near.dst):
        assert np.bincount(end[after.link] * 15 + after.line).max() == 1
    kept = set(zip(lit.link.tolist(), lit.line.tolist(), strict=True)) & set(zip(after.link, after.line, strict=True))
    first_job = np.flatnonzero(first.near.src[lit.link] < 8)
    assert {(lit.link[at], lit.line[at]) for at in first_job} <= kept
    again = comb_lines(first.near, first.wavelengths, 15, lit)
    assert set(zip(again.link, again.line, strict=True)) == set(zip(lit.link, lit.line, strict=True))


def test_more_wavelengths_than_a_comb_has_are_refused():
    _, near = near_of(2, 2)
    with pytest.raises(InputError) as refused:
        comb_lines(near, np.full(8, 2), 3)
    assert str(refused.value) == "comb lines: wavelengths in and out of a CU must be at most 3, got 4"
