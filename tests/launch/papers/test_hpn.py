"""Rows of the HPN paper: faults are played in time, steps and not ports are judged, and NVSwitches add in 9.2."""

from types import SimpleNamespace

import numpy as np
import pytest

from launch.papers.hpn import figures, times
from launch.papers.hpn.figures import OUTAGES, TIMEOUT_S
from launch.papers.hpn.training import STEPS, dual_tor
from launch.papers.networks import collective_s


def steps_of():
    """Return estimates of steps by the ways of four channels from the first host's first GPU to the next host's.

    A step takes 2 s, 2.5 s without a link on its way, and 100 s over a link that carries next to nothing.
    """

    def estimate(model, plan, of, built):
        topology = built()
        routes = topology.routes(np.zeros(4, int), np.full(4, 8), np.arange(4))
        slowest = topology.links.bandwidth_Bps[routes.link].min()
        return SimpleNamespace(step_time_s=100.0 if slowest < 1e9 else 2.5 if "without" in topology.name else 2.0)

    return SimpleNamespace(steps=SimpleNamespace(estimate=estimate))


def test_a_job_with_one_tor_waits_until_its_message_is_sent_again_and_ends_when_none_is_left():
    """The tries come every 17.2 s, the fourth after a minute; the seventh is the last."""
    minute, beyond, just = (figures.down(steps_of().steps, figures.single_tor(), s) for s in (60.0, 121.0, 7 * TIMEOUT_S - 0.1))
    assert (minute.waiting_s, minute.stopped) == (pytest.approx(4 * TIMEOUT_S), None)
    assert beyond.stopped.startswith("at 147.4 s: 7 tries")
    assert just.stopped is None


def test_a_job_with_two_tors_waits_for_the_routes_alone():
    """A halt of a second, then steps take 2.5 s in place of 2 s until the link is back."""
    found = figures.down(steps_of().steps, dual_tor(figures.HOSTS), 60.0)
    assert (found.waiting_s, found.slower_s) == (pytest.approx(1), pytest.approx(59 * 0.2))


def test_the_statements_on_outages_follow_from_the_times(monkeypatch):
    """By NCCL's own default a minute is too long, and a flap is not; with one ToR in place of two neither holds."""
    assert [answer(steps_of(), None).holds for answer in OUTAGES.values()] == [True, True, True]
    with monkeypatch.context() as changed:
        changed.setattr(figures, "TIMEOUT_S", 4.096e-6 * 2**18)
        assert [OUTAGES[row](steps_of(), None).holds for row in ("hpn-s-fail", "hpn-s-flap")] == [False, False]
    with monkeypatch.context() as changed:
        changed.setattr(figures, "dual_tor", lambda _: figures.single_tor())
        assert [OUTAGES[row](steps_of(), None).holds for row in ("hpn-s-back", "hpn-s-flap")] == [False, False]


def test_figure_18_has_a_line_for_each_job_from_0_to_200_s():
    """Lines are steps: two points for each span of one throughput."""
    failed, flaps = figures.over_time(steps_of())
    assert [len(figure.curves) for figure in (failed, flaps)] == [3, 2]
    for curve in (*failed.curves, *flaps.curves):
        assert (curve.x[0], curve.x[-1], curve.y[0], len(curve.x) % 2) == (0, 200, 100, 0)
    assert min(failed.curves[0].y) == 0
    assert sorted(set(failed.curves[1].y)) == pytest.approx([0, 80, 100])


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
