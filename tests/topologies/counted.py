"""Parts that one buys, counted on the links and nodes of a built topology and not read from its bill, which settings make."""

import numpy as np

PORT = 50e9  # bytes per second, one direction: 400 Gb/s


def ports(topology, rows=slice(None), rate=PORT):
    """Ports of that rate which some links, of all unless given, have at their senders; a cable has one at either end."""
    return round(float(topology.links.bandwidth_Bps[rows].sum()) / rate)


def ways(topology, node, rows=slice(None)):
    """Links out of a node."""
    return int((topology.links.src[rows] == node).sum())


def of_tier(topology, word):
    """[L] whether a link is of the tier that is called so."""
    return topology.links.dimension == topology.tiers.index(word)


def ends(topology, rows=slice(None)):
    """[dims, links] and [dims, links] the places of the NPUs at both ends."""
    return tuple(np.stack(np.unravel_index(end[rows], topology.dims)) for end in (topology.links.src, topology.links.dst))


def switches(topology, radix, rate=PORT):
    """Switches of so many ports: as many as all that the nodes behind the NPUs have fill."""
    return ports(topology, topology.links.src >= topology.n_npus, rate) / radix


def nvl(topology):
    """Count the parts of an NVL rack whose chips are apart (InfiniteHBD's Table 8).

    Copper has 25 GB/s one way, active copper and a module 200 GB/s. What joins two switches that both have GPUs is active
    copper, and goes on as 8 DAC within the racks; light joins others.
    """
    links, gpu = topology.links, (topology.links.src < topology.n_npus) | (topology.links.dst < topology.n_npus)
    leaves = np.unique(links.dst[links.src < topology.n_npus])
    active = ~gpu & np.isin(links.src, leaves) & np.isin(links.dst, leaves)
    return {
        "NPU": topology.n_npus,
        "NVLink switch": topology.n_nodes - topology.n_npus,
        "DAC cable": ports(topology, gpu, 25e9) + ports(topology, active, 200e9) // 2 * 8,
        "ACC cable": ports(topology, active, 200e9) // 2,
        "optical module": ports(topology, ~gpu & ~active, 200e9),
    }


def tpuv4(topology, latency_fs=700_000_000):
    """Count the parts of a TPUv4 with light of 700 ns: copper joins boards of 2 x 2 chips in a cube, an OCS has 128 ports."""
    light = topology.links.latency_fs == latency_fs
    boards = [end // np.array([1, 2, 2])[:, None] for end in ends(topology)]
    copper = ~light & (boards[0] != boards[1]).any(axis=0)
    modules = ports(topology, light)
    return {
        "NPU": topology.n_npus,
        "optical module": modules,
        "fibre": modules,
        "OCS": modules / 128,
        "DAC cable": ports(topology, copper) / 2,
    }


def infinitehbd(topology):
    """Count the parts of an InfiniteHBD where some nodes are looped, which so show all of their bundles.

    A bundle of 8 OCSTrx of 100 GB/s, or two cables of copper of 200, has 400 GB/s for each of its two GPUs.
    """
    gpus = topology.dims[-1]
    links, rings = topology.links, topology.links.dimension < 3
    node = [end[rings] // gpus for end in (links.src, links.dst)]
    kind = links.dimension[rings]
    looped = np.setdiff1d(np.arange(topology.n_npus // gpus), np.concatenate([end[kind == 2] for end in node]))
    within = np.isin(node[0], looped)
    rates = [links.bandwidth_Bps[rings][within & (kind == k)].sum() / len(looped) for k in (0, 1)]
    nodes = topology.n_npus // gpus
    trx = round(rates[1] / 100e9) * nodes
    dac = round(rates[0] / 400e9) * nodes
    return {"NPU": topology.n_npus, "node": nodes, "DAC cable": dac, "OCSTrx": trx}


def hpn(topology):
    """Count the parts of a pod: switches by what leads to them, copper to NICs, a module at both ends of links above."""
    nic, up = (of_tier(topology, word) for word in ("NIC to ToR", "ToR to Agg"))
    links, n = topology.links, topology.n_npus
    tors = np.unique(links.dst[nic & (links.src < n)])
    return {
        "NPU": n,
        "ToR switch": len(tors),
        "Agg switch": len(np.setdiff1d(links.dst[up], tors)),
        "cable NIC to ToR": int(nic.sum()) // 2,
        "cable ToR to Agg": int(up.sum()) // 2,
        "optical transceiver": ports(topology, up),
    }
