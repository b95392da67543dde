"""Which node each participant of a job is on: ranks on NPUs, helpers on switches."""

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, column
from emu.errors import InputError
from emu.topology.topology import Topology


def place(topology: Topology, n_ranks: int, npus: ArrayLike | None = None) -> I32:
    """[n_ranks] the NPU of each rank; the topology's first ones unless `npus` says which.

    Raises:
        InputError: more ranks than NPUs, not one NPU a rank, an NPU that does not exist, or two ranks on one.
    """
    if n_ranks > topology.n_npus:
        raise InputError(
            f"placement: {n_ranks} ranks do not fit {topology.name} with its {topology.n_npus} NPUs; "
            "take fewer ranks or a larger topology"
        )
    chosen = column(np.arange(n_ranks) if npus is None else npus, np.int32)
    if len(chosen) != n_ranks or len(np.unique(chosen)) != n_ranks:
        raise InputError(f"placement: {n_ranks} ranks need {n_ranks} different NPUs, got {len(np.unique(chosen))}")
    if n_ranks and not 0 <= chosen.min() <= chosen.max() < topology.n_npus:
        raise InputError(f"placement: NPUs must be 0..{topology.n_npus - 1}, got {chosen.min()}..{chosen.max()}")
    return chosen


def with_helpers(topology: Topology, ranks: ArrayLike, helpers: int) -> I32:
    """[n_ranks + helpers] the nodes of the ranks, then a switch for each helper.

    Raises:
        InputError: fewer switches than helpers.
    """
    switches = topology.n_nodes - topology.n_npus
    if helpers > switches:
        raise InputError(
            f"placement: {helpers} helpers, such as a switch that adds, do not fit {topology.name} with its {switches} "
            "switches; take an algorithm without helpers, or a topology with switches"
        )
    return column(np.concatenate((np.asarray(ranks), topology.n_npus + np.arange(helpers))), np.int32)
