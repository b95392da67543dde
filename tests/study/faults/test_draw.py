"""Faults that models draw, held to closed forms."""

from math import comb

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.faults import source
from emu.study.faults.source import FaultLog, PartLifetimes, draw_log, draw_node_faults, independent_states, states_of_log
from launch.data.presets import production_log


def unavailable(log):
    found = states_of_log(log)
    return float(found.share @ found.faulty.mean(axis=1))


def test_nodes_are_faulty_for_mttr_of_mtbf_and_mttr():
    lives = PartLifetimes(mtbf_days=20, mttr_days=5)
    log = draw_log((lives,), 400, 1000, seed=3)
    assert unavailable(log) == pytest.approx(5 / 25, rel=0.03)
    assert log.mean_repair_days == pytest.approx(5, rel=0.03)
    assert len(log.unit) / log.units / log.days == pytest.approx(1 / 25, rel=0.03)


def test_a_domain_takes_all_its_nodes_at_once():
    found = states_of_log(draw_log((PartLifetimes(20, 5, units_per_part=8),), 20, 500, seed=0))
    domains = [found.faulty[:, :8], found.faulty[:, 8:16], found.faulty[:, 16:]]
    assert all((domain.all(axis=1) == domain.any(axis=1)).all() for domain in domains)
    assert not (domains[0][:, 0] == domains[1][:, 0]).all()


def test_kinds_of_parts_fail_beside_one_another():
    both = unavailable(draw_log((PartLifetimes(20, 5), PartLifetimes(60, 5, units_per_part=2)), 200, 1000, seed=1))
    assert both == pytest.approx(1 - (20 / 25) * (60 / 65), rel=0.04)


def test_a_rate_is_the_share_of_nodes_that_are_faulty():
    found = independent_states(0.0117, 720, 2000, seed=0)
    assert found.faulty.mean() == pytest.approx(0.0117, rel=0.02)
    counts = found.faulty.sum(axis=1)
    assert counts.var() == pytest.approx(720 * 0.0117 * (1 - 0.0117), rel=0.1)  # as independent ones have it


def test_both_halves_of_a_server_fail_in_a_quarter_of_its_faults_and_none_in_another():
    """InfiniteHBD, appendix A: each 4-GPU half of a faulty 8-GPU server is faulty with 1.17 / 2.33 % = 50.21 %."""
    spells = 40_000
    halves = draw_node_faults(faulty_servers(spells), 2, 0.0233, seed=0)
    found = np.bincount(halves.unit // 2, minlength=spells)
    often = [(1 - 0.5021) ** 2, 2 * 0.5021 * (1 - 0.5021), 0.5021**2]
    assert np.bincount(found) / spells == pytest.approx(often, abs=0.01)


def test_a_node_is_faulty_in_spells_of_its_server_alone():
    log = production_log()
    halves = draw_node_faults(log, 2, 0.0233, seed=0)
    spells = set(zip(halves.unit // 2, halves.start, halves.end, strict=True))
    assert spells < set(zip(log.unit, log.start, log.end, strict=True))
    assert (halves.units, halves.days) == (2 * log.units, log.days)
    assert draw_node_faults(log, 1, 0.0233, seed=0) is log


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_of_a_faulty_server_each_node_is_faulty_by_itself(nodes):
    """A node is with q, so that a server is with 1 - (1 - q)^n; in a spell of its server it is with q / rate."""
    rate, spells = 0.5, 40_000
    drawn = draw_node_faults(faulty_servers(spells), nodes, rate, seed=5)
    share = (1 - 0.5 ** (1 / nodes)) / rate
    often = [comb(nodes, k) * share**k * (1 - share) ** (nodes - k) for k in range(nodes + 1)]
    counted = np.bincount(np.bincount(drawn.unit // nodes, minlength=spells), minlength=nodes + 1) / spells
    assert counted == pytest.approx(often, abs=4 * 0.5 / spells**0.5)  # four standard deviations at the most
    each = np.bincount(drawn.unit % nodes) / spells
    assert each == pytest.approx([share] * nodes, abs=4 * 0.5 / spells**0.5)


def test_nodes_of_a_log_whose_servers_are_never_faulty_are_not():
    assert len(draw_node_faults(faulty_servers(4), 2, 0.0, seed=0).unit) == 0


def faulty_servers(spells):
    return FaultLog(spells, 1.0, np.arange(spells), np.zeros(spells), np.ones(spells), np.arange(spells))


def test_the_same_seed_draws_the_same_and_another_does_not():
    one, again, other = (draw_log((PartLifetimes(20, 5),), 50, 100, seed) for seed in (1, 1, 2))
    assert one.start.tolist() == again.start.tolist() != other.start.tolist()


def test_what_cannot_be_drawn_is_one_line():
    with pytest.raises(InputError, match="faults: mtbf_days must be a finite number of days above 0, got 0"):
        PartLifetimes(0, 1)
    with pytest.raises(InputError, match="faults: --rate must be 0 or more and below 1, got 1"):
        independent_states(1, 4, 4, 0)
    with pytest.raises(InputError, match="faults: --draws must be 1 or more, got 0"):
        independent_states(0.5, 4, 0, 0)
    with pytest.raises(InputError, match="faults: units of a part must be 1 or more, got 0"):
        PartLifetimes(1, 1, units_per_part=0)
    with pytest.raises(InputError, match="faults: --days must be a finite number above 0, got 0"):
        draw_log((PartLifetimes(1, 1),), 4, 0, 0)


def test_without_a_fault_a_log_is_one_state():
    log = draw_log((PartLifetimes(1e9, 1),), 4, 10, 0)
    assert states_of_log(log).faulty.tolist() == [[False] * 4]
    assert np.array_equal(states_of_log(log).share, [1.0])


def test_the_faults_of_all_kinds_of_parts_have_numbers_of_their_own():
    """Nodes, pairs and fours fail: spells of one number begin together, on nodes of one part, and no number is left out."""
    log = draw_log(tuple(PartLifetimes(20, 1, units_per_part=each) for each in (1, 2, 4)), 8, 200, seed=2)
    for fault in np.unique(log.fault):
        mine = log.fault == fault
        assert len(set(log.start[mine])) == len(set(log.end[mine])) == 1
        assert log.unit[mine].tolist() == list(range(log.unit[mine][0], log.unit[mine][0] + mine.sum()))
    assert sorted(set(log.fault.tolist())) == list(range(len(set(log.start.tolist()))))
    assert sorted({int((log.fault == fault).sum()) for fault in log.fault}) == [1, 2, 4]


def test_draws_that_would_be_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(source, "MOST_NODE_STATES", 60)
    monkeypatch.setattr(source, "MOST_FAULTS", 60)
    assert independent_states(0.5, 6, 10, 0).faulty.shape == (10, 6)
    with pytest.raises(InputError, match="faults: --draws must be at most 10 for 6 nodes, got 11"):
        independent_states(0.5, 6, 11, 0)
    assert draw_log((PartLifetimes(4, 1),), 6, 50, 0).days == 50  # six nodes fail every five days
    with pytest.raises(InputError, match="faults: faults that are drawn must be at most some 60, got '66'; take fewer days"):
        draw_log((PartLifetimes(4, 1),), 6, 55, 0)
    assert draw_log((PartLifetimes(4, 1, units_per_part=2),), 6, 100, 0).days == 100  # and three pairs half as often
