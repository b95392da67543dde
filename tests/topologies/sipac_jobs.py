"""SiPACs in which jobs are set up, as their tests look at them."""

import numpy as np

from topologies.sipac.assignment import initial, reconfigure, sequential
from topologies.sipac.levels import Levels, neighbours


def near_of(r, L, w=60):
    levels = Levels("flex-sipac", r, L, w)
    return levels, neighbours(levels)


def set_up(r, L, w, sizes, by="heuristic", keep=0, traffic=None):
    return reconfigure(initial(Levels("flex-sipac", r, L, w), keep), sequential(sizes), traffic, by)


def table_of(configuration):
    """[N, N] wavelengths."""
    near = configuration.near
    table = np.zeros((near.n, near.n), int)
    table[near.src, near.dst] = configuration.wavelengths
    return table
