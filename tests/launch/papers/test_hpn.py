"""Rows of the HPN paper: faults are played in time, steps and not ports are judged, and NVSwitches add in 9.2."""

from types import SimpleNamespace

import pytest

from launch.papers.hpn import times, training
from launch.papers.hpn.training import STEPS, TIMEOUT_S, dual_tor, link_failure, link_flap, outage, single_tor
from launch.papers.networks import collective_s

HOSTS = 2


def test_a_job_with_one_tor_waits_until_its_message_is_sent_again_and_ends_when_none_is_left():
    minute, beyond = (outage(single_tor(HOSTS), HOSTS, down_s) for down_s in (60.0, 121.0))
    assert (minute.resends, minute.stopped) == (4, None)
    assert minute.lost_s == pytest.approx(4 * TIMEOUT_S, abs=0.2)
    assert "rank 0 was killed" in beyond.stopped
    assert outage(single_tor(HOSTS), HOSTS, 7 * TIMEOUT_S - 0.1).stopped is None


def test_a_job_with_two_tors_waits_for_the_routes_alone():
    short, long = (outage(dual_tor(HOSTS), HOSTS, down_s) for down_s in (60.0, 121.0))
    assert (short.resends, short.stopped) == (0, None)
    assert 0.5 < short.lost_s == long.lost_s < 1.5


def test_the_statements_on_outages_follow_from_the_times(monkeypatch):
    assert link_failure(HOSTS).holds
    assert link_flap(HOSTS).holds
    with monkeypatch.context() as changed:  # the timeout of NCCL's own default: a minute is too long, and a flap is not
        changed.setattr(training, "TIMEOUT_S", 4.096e-6 * 2**18)
        outage.cache_clear()
        assert not link_failure(HOSTS).holds
        assert not link_flap(HOSTS).holds
    with monkeypatch.context() as changed:  # one ToR in place of two
        changed.setattr(training, "dual_tor", single_tor)
        outage.cache_clear()
        assert not link_failure(HOSTS).holds
        assert not link_flap(HOSTS).holds
    outage.cache_clear()


def test_what_a_failed_link_costs_is_read_from_the_steps_before_and_while_it_is_down():
    def estimate(model, plan, of, built):
        more = "without the link" in of
        return SimpleNamespace(step_time_s={8: 2.0, 1: 1.0}[plan.tp] * (1 + more * {8: 0.25, 1: 1.0}[plan.tp]))

    answer = STEPS["hpn-625"](SimpleNamespace(steps=SimpleNamespace(estimate=estimate)), None)
    assert answer.ours == pytest.approx(20)
    assert any("with TP=1" in words and "50.0 %" in words for words in answer.notes)
    assert answer.notes[0].startswith("steps of 2.000, 3.500, 2.500, 2.000 s")


def test_all_reduces_of_9_2_and_appendix_a_are_added_in_the_nvswitch(monkeypatch):
    asked = []

    def seconds(word, operation, name, shape, size, at):
        asked.append((name, size))
        return 3.0 if "clos" in word or "dcn" in word else 2.0

    monkeypatch.setattr(times, "collective_s", seconds)
    times.dual_plane.cache_clear()
    assert set(times.dual_plane().values()) == {50.0}
    assert set(asked) == {("in-switch-tree@4", 2**32)}
    times.dual_plane.cache_clear()
    asked.clear()
    assert times.TIMES["hpn-ar"]().ours == 50.0
    assert {name for name, _ in asked[:-2]} == {"in-switch-tree@4"}
    assert {size for _, size in asked[:-2]} == {2**23, 2**26, 2**30}


def test_adding_in_the_nvswitch_takes_less_than_adding_in_gpus():
    word = "hpn:pod:dims=2x2x8,aggs=2"
    inside, outside = (
        collective_s(word, "all_reduce", name, (4, 8), 2**26) for name in ("in-switch-tree@4", "hierarchical-direct-ring@4")
    )
    assert inside < outside
