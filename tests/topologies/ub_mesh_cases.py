"""Cases that tests of UB-Mesh's routing share: what the paper prints, and the routes of all pairs."""

import itertools

import numpy as np

ROWS = {"ub-sr": 8, "ub-vl": 2}


def asked(topology, keys):
    pairs = np.array(list(itertools.permutations(range(topology.n_npus), 2)))
    src, dst = np.repeat(pairs, keys, axis=0).T
    key = np.tile(np.arange(keys), len(pairs))
    return src, dst, topology.routes(src, dst, key)
