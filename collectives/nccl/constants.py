"""The constants of NCCL's tuning model: latencies in microseconds, bandwidths in GB/s, by generation of GPU and by protocol.

Source: NVIDIA/nccl v2.30.7-1, src/graph/tuning.cc lines 133-210 (latencies, limits a channel, NVLS efficiency) and 479-483 (the
correction of trees), src/graph/topo.h lines 18-26 (NVLink), src/graph/search.cc lines 1051-1065 (speeds that are tried),
src/include/comm.h and device.h (threads, channels). Orders: protocols LL, LL128, Simple; generations Volta to Blackwell.
"""

from typing import NamedTuple

PROTOCOLS = ("LL", "LL128", "Simple")
LL, LL128, SIMPLE = range(3)
Rates = tuple[float, float, float]  # rates with one, two, and more servers


class Generation(NamedTuple):
    """NCCL's constants for the GPUs of one generation, such as speeds of channels and bandwidths of protocols."""

    name: str
    nvlink: float  # GB/s, the rate that data reach over all NVLinks of a GPU
    most_nvlink: float  # GB/s, the vendor's rate, one way, of all NVLinks of the generation's fastest GPU
    within: tuple[float, ...]  # speeds of a channel that are tried in one server, the highest first
    between: tuple[float, ...]  # speeds of a channel that are tried over NICs
    ll: float  # the largest rate of LL in one server, all channels together
    ring_ll128: float  # the largest rate of a channel; likewise the next three fields
    tree_ll128: Rates
    tree: Rates
    nvls_tree: Rates
    nvls: float  # NVLS's efficiency; 0: it has none


_OLD = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_OLD_NICS = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_HOPPER = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
_HOPPER_NICS = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_BLACKWELL = (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
_BLACKWELL_NICS = (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
GENERATIONS = (
    Generation("Volta", 6 * 20, 150, _OLD, _OLD_NICS, 39, 20, (20, 20, 20), (26.5, 18.5, 10), (26.5, 18.5, 10), 0),
    Generation("Ampere", 12 * 20, 300, _OLD, _OLD_NICS, 87.7, 20, (20, 20, 20), (24, 23.6, 17.8), (24, 23.6, 17.8), 0),
    Generation(
        "Hopper", 18 * 20.6, 450, _HOPPER, _HOPPER_NICS, 141, 36.7, (36.7, 36.7, 29), (38.7, 41.4, 36), (0, 57.7, 45.5), 0.85
    ),
    Generation(
        "Blackwell", 18 * 40.1, 900, _BLACKWELL, _BLACKWELL_NICS, 282, 40, (55.6, 31.67, 20), (70, 42.8, 24), (0, 96, 80), 0.74
    ),
)
LL_BETWEEN: Rates = (39.0, 39.0, 20.4)  # the largest rate of LL over NICs, all channels together, with Intel's hosts

# [algorithm][protocol] microseconds: before anything is sent, for a step over NVLink, and for a step over NICs.
BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)}
OVER_NVLINK = {
    "tree": (0.6, 1.25, 4.0),
    "ring": (0.6, 1.9, 3.4),
    "collnet-direct": (0.0, 0.0, 3.7),
    "collnet-chain": (0.0, 0.0, 2.8),
    "nvls": (0.0, 0.0, 25.0),
    "nvls-tree": (0.0, 0.0, 25.0),
}
OVER_NICS = {
    "tree": (5.0, 8.5, 14.0),
    "ring": (2.7, 4.0, 14.0),
    "collnet-direct": (0.0, 0.0, 31.0),
    "collnet-chain": (0.0, 0.0, 30.0),
    "nvls": (0.0, 0.0, 18.0),
    "nvls-tree": (0.0, 0.0, 20.9),
    "pat": (0.0, 0.0, 14.0),
}
POST = (1.0, 1.0, 3.0)  # least microseconds that a host takes to post a message of a ring, with Intel's hosts

# [protocol][log2(bytes / 64)]: share of the model's rate that trees reach at medium sizes.
TREES_REACH = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
)
TREES_TO = {"tree": 23, "nvls-tree": 24}  # number of entries that are used; for NVLSTree with Blackwells only
# Factor of Simple's latency on rings over NICs, from 64 bytes a rank and channel on; the second is for Volta.
RING_PLATEAU = (1.4, 1.9)

MOST_CHANNELS = 64
MOST_SEARCHED = 32  # largest number of channels before they are doubled
NVLS_CHANNELS = {"Hopper": (16, 16), "Blackwell": (24, 32)}  # channels in one server, and over several
THREADS = (512, 640, 512)  # threads of a channel, by protocol
SLOW_THREADS = 256  # threads of a channel with Simple, on rings no faster than PCIe's third generation
PCIE = 12.0
BYTES_A_THREAD = (8, 8, 64)  # least bytes for each thread of a channel; with LL on a ring, for each rank too
MOST_HEADS = 32  # largest number of ranks of a server that NVLS serves, but for an all_reduce
MOST_DIRECT = 8  # largest number of ranks of a server that CollNet serves
