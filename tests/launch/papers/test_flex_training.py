"""The gradients and the systems of Flex-SiPAC's figures 7 and 8."""

import pytest

from launch.papers.flex_sipac.training import FLEX, JOBS, LIGHT, MESH, SHARED, bert, candle, iteration_s, sigma, time_s, vgg
from launch.papers.networks import collective_s


def test_models_have_as_many_parameters_as_are_published():
    assert len(vgg()) == 16
    assert sum(vgg()) == 138_357_544  # torchvision's vgg16
    assert sum(bert()) == pytest.approx(335_141_888, rel=0.005)  # bert-large-uncased, which has norms and a pooler besides
    assert candle()[:2] == [942 * 4192 + 4192, 4192 * 4192 + 4192]
    assert len(candle()) == 3 * 8 + 5


def test_an_iteration_takes_the_all_reduces_of_all_layers():
    """The least is what the bytes of the model need at the rate of a CU."""
    least_s = 2 * (1 - 1 / 64) * 4 * sum(vgg()) / 240e9
    assert least_s < iteration_s(FLEX, 64, 64, "VGG") < 2 * least_s
    layers = [time_s(SHARED, 64, 64, -(-4 * count // 49152) * 49152) for count in vgg()]
    assert iteration_s(SHARED, 64, 64, "VGG") == pytest.approx(sum(layers), rel=1e-12)


def test_two_equal_jobs_have_no_skew_and_a_single_one_has_1():
    assert [sigma(64, job) for job in (JOBS[64][0], JOBS[64][-1])] == [0, 1]


@pytest.mark.parametrize("job", [256, 512])
def test_a_mesh_crosses_other_cus_where_sipco_has_neighbours_alone(job):
    assert time_s(MESH, 512, job, 2**10) > time_s(FLEX, 512, job, 2**10)


def test_circuits_of_sip_ocs_stay_within_a_job_whatever_else_runs():
    """Half of the GPUs are joined as those of a whole smaller system with as many switches are."""
    alone = collective_s("sip-ocs:n=32", "all_reduce", "direct", 32, 2**20)
    assert time_s(LIGHT, 64, 32, 2**20) == pytest.approx(alone, rel=1e-12)
    assert time_s(FLEX, 64, 64, 2**20) < time_s(LIGHT, 64, 64, 2**20)
