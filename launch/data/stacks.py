"""Words that `--stack` takes for several settings at once; each number with its source.

nccl: NCCL's choice of algorithms, and NCCL's all_reduce on a node of 8 H100 by nccl-tests; `emu repro nccl --fit` fits launch,
alpha, adding and the share of NVLink's bandwidth (the first tier). The share of NICs (the other tiers) is not fitted: a round
number below the 0.98 that the headers of InfiniBand packets of 4 KiB leave.
"""

from collections.abc import Mapping

_NETWORK = "library=nccl,alpha=54.73ns,adding=8.278us,bandwidth=0.6581/0.95"
STACKS: Mapping[str, str] = {
    "nccl": f"launch=10.36us,{_NETWORK}",
    "nccl-ahead": _NETWORK,  # where the host asks ahead of the device, as in a training step: no launch is waited for
}
