"""Which node each participant of a job is on."""

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
