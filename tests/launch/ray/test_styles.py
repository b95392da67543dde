"""PyTorch's parallel styles on four actors of Ray, or on two with two ranks each: the losses of one process."""

import pytest

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from launch.ray.cluster import RayCluster
from tests.cluster.styles import STYLES, N, check

pytestmark = [pytest.mark.ray, pytest.mark.slow]
# PyTorch takes the gradients of a zero bubble's weights in the order of a set of graph nodes, that is of their addresses.
BY_ADDRESS = {"zero bubble"}


@pytest.fixture(scope="module", params=[1, 2], ids=["4-actors", "2-actors"])
def cluster(request):
    with RayCluster(per_actor=request.param, timeout_s=60.0) as ranks:
        yield ranks


@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
@pytest.mark.parametrize("style", STYLES)
def test_every_style_has_the_losses_of_one_process_and_the_trace_of_threads(cluster, style):
    program = STYLES[style]
    ours, trace = cluster.run_traced(N, Choice(), program)
    check(ours)
    expected, expected_trace = LocalCluster().run_traced(N, Choice(), program)
    assert ours == expected
    if style in BY_ADDRESS:
        assert [len(events) for events in trace.events] == [len(events) for events in expected_trace.events]
    else:
        assert trace.digest() == expected_trace.digest()
