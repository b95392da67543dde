"""PyTorch's parallel styles on four actors of Ray, or on two with two ranks each: the losses of one process."""

import pytest

from emu.cluster.threads import LocalCluster
from emu.collective.algorithm import Choice
from launch.ray.cluster import RayCluster
from tests.cluster.styles import STYLES, N, check

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module", params=[1, 2], ids=["a rank an actor", "two ranks an actor"])
def cluster(request):
    with RayCluster(per_actor=request.param, timeout_s=60.0) as ranks:
        yield ranks


@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
@pytest.mark.parametrize("style", STYLES)
def test_every_style_has_the_losses_of_one_process_and_the_trace_of_threads(cluster, style):
    program = STYLES[style]
    ours, trace = cluster.record(N, Choice(), program)
    check(ours)
    expected, expected_trace = LocalCluster().record(N, Choice(), program)
    assert ours == expected
    assert trace.digest() == expected_trace.digest()
