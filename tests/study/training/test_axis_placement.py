"""Which axis has neighbouring NPUs, and what a topology of fewer NPUs than a plan's takes."""

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.study.training.axes import axes_of, with_axes
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")
PLAN = parse_plan("tp=2,dp=4,pp=2", global_batch=16, seq=64)
RACK = build_topology("ub-mesh:rack")


def at(axes, plan=PLAN):
    """The NPU of each rank, [pp, dp, tp]."""
    return place(with_axes(RACK, plan, axes), plan.world).reshape(plan.pp, plan.dp, plan.tp)


def test_the_first_axis_has_neighbouring_npus_and_the_last_far_ones():
    assert at(()).ravel().tolist() == list(range(16))
    assert at(("tp", "dp", "pp")).ravel().tolist() == list(range(16))
    npus = at(("dp", "pp", "tp"))
    assert npus[0, :, 0].tolist() == [0, 1, 2, 3]
    assert npus[:, 0, 0].tolist() == [0, 4]
    assert npus[0, 0].tolist() == [0, 8]
    assert np.unique(npus).tolist() == list(range(16))


def test_npus_without_a_rank_keep_their_place():
    topology = with_axes(RACK, PLAN, ("pp", "dp", "tp"))
    assert place(topology, 64)[16:].tolist() == list(range(16, 64))
    assert topology.place(5, [0]).tolist() == place(topology, 6)[1:].tolist()  # a faulty one is left out


def test_axes_of_one_rank_may_be_named_or_left_out():
    assert axes_of(PLAN) == ("tp", "dp", "pp")
    assert axes_of(PLAN, ("pp", "cp", "tp", "dp")) == ("pp", "tp", "dp")
    with pytest.raises(
        InputError, match=r"^estimate: --axes must be each of tp,dp,pp once, .*, got 'tp,dp'; such as pp,dp,tp$"
    ):
        axes_of(PLAN, ("tp", "dp"))


def test_a_step_takes_another_time_where_tensor_parallelism_is_far_apart():
    topology = build_topology("servers:nodes=2,gpus=4")
    near = EstimateRequest("llama-tiny", parse_plan("tp=4,dp=2", global_batch=8, seq=64), algorithms=("auto",))
    found, far = (estimate(each, topology, H100) for each in (near, replace(near, axes=("dp", "tp"))))
    assert (found.axes, far.axes) == ("tp,dp", "dp,tp")
    assert sum("in the topology's own order" in line for line in found.assumptions) == 1
    [told] = [line for line in far.assumptions if " sit on " in line]
    assert told.endswith("in the order of the axes: neighbouring NPUs have the ranks of dp, then tp")
    assert far.exposed_comm_by_axis_s["tp"] > 1.2 * found.exposed_comm_by_axis_s["tp"]


def test_a_topology_of_fewer_npus_takes_less_dp_and_as_much_less_of_the_batch():
    request = EstimateRequest(
        "llama-tiny", parse_plan("tp=2,dp=8", global_batch=32, seq=64), algorithms=("auto",), scale_dp=True
    )
    found = estimate(request, build_topology("ub-mesh:board"), H100)
    assert (found.ranks, found.dp, found.global_batch) == (8, 4, 16)
    assert estimate(request, build_topology("ub-mesh:rack"), H100).dp == 8
    small = build_topology("full-mesh:n=2,bandwidth=1GB/s,latency=1us")
    wide = replace(request, plan=parse_plan("tp=4,dp=2", global_batch=4, seq=64))
    with pytest.raises(
        InputError, match=r"^estimate: NPUs of full-mesh:\S+ must be 4 or more, for the least dp that the plan allows, got 2"
    ):
        estimate(wide, small, H100)
