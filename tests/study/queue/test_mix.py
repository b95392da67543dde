"""Mixes of jobs have the figures that their sources publish."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from emu.errors import InputError
from emu.study.queue.workload.job_mix import MixFigures, job_mix
from launch.data.job_mixes import MIXES, find_mix


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_has_the_published_mean_median_and_npu_time(name):
    mix = find_mix(name)
    figures = mix.figures
    longest = np.log(figures.longest_s)

    def mean(at):  # of the run times of one size, by integration over the normal
        return quad(lambda z: np.exp(min(np.log(at) + mix.sigma * z, longest)) * norm.pdf(z), -12, 12, limit=400)[0]

    means = np.array([mean(at) for at in mix.median_s])
    assert mix.share.sum() == pytest.approx(1)
    assert mix.share @ mix.sizes == pytest.approx(figures.mean_npus, rel=1e-3)
    assert mix.share @ means == pytest.approx(figures.mean_s, rel=1e-4)
    assert mix.share @ (means * mix.sizes) == pytest.approx(figures.npu_seconds, rel=1e-4)
    assert mix.share @ norm.cdf((np.log(figures.median_s) - np.log(mix.median_s)) / mix.sigma) == pytest.approx(0.5)
    assert mix.sizes.max() == figures.most_npus


@pytest.mark.parametrize("name", MIXES)
def test_jobs_that_are_drawn_have_the_distribution_of_their_mix(name):
    mix = find_mix(name)
    jobs = mix.draw(20000, 30, 1)
    sizes, work_s = np.array([job.npus for job in jobs]), np.array([job.work_us for job in jobs]) / 1e6
    assert np.median(work_s) == pytest.approx(mix.figures.median_s, rel=0.1)
    assert (sizes == 1).mean() == pytest.approx(mix.share[0], abs=0.02)
    assert work_s.max() <= mix.figures.longest_s
    submit = [job.submit_us for job in jobs]
    assert submit == sorted(submit)
    assert submit[0] >= 0
    assert submit[-1] < 30 * 86400e6
    assert mix.draw(50, 30, 1) == mix.draw(50, 30, 1)
    assert mix.draw(50, 30, 1) != mix.draw(50, 30, 2)


def test_one_factor_makes_jobs_ask_for_a_load():
    mix = find_mix("acme")
    plain, loaded = mix.draw(500, 30, 3), mix.draw(500, 30, 3, 1e15)
    assert sum(job.npus * job.work_us for job in loaded) == pytest.approx(1e15, rel=1e-6)
    factors = [b.work_us / a.work_us for a, b in zip(plain, loaded, strict=True)]
    assert np.ptp(factors) < 1e-4 * factors[0]


def test_jobs_that_are_too_large_for_the_machine_make_up_no_load():
    jobs = find_mix("acme").draw(500, 30, 3, 1e15, 8)
    assert max(job.npus for job in jobs) > 8
    assert sum(job.npus * job.work_us for job in jobs if job.npus <= 8) == pytest.approx(1e15, rel=1e-6)
    with pytest.raises(InputError, match="a job must be of at most 1 NPUs, those of the machine, got '1 larger ones'"):
        [find_mix("acme").draw(1, 30, seed, 1e15, 1) for seed in range(99)]


def test_figures_that_no_log_normal_has_are_refused():
    figures = MixFigures("a source", "jobs", 10.0, 100.0, 1000.0, 50.0, 2.0, 8)
    with pytest.raises(InputError, match="the figures of a mix must be such that log-normal run times can have them"):
        job_mix("impossible", figures)


def test_each_mix_names_its_source_and_what_is_assumed():
    for name in MIXES:
        notes = find_mix(name).notes
        assert find_mix(name).figures.source in notes[0]
        assert any("log-normal" in note for note in notes)


def test_an_unknown_mix_is_answered_by_the_nearest():
    with pytest.raises(InputError, match=r"no mix of jobs is called 'philli'; did you mean philly"):
        find_mix("philli")
