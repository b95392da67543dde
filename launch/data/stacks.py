"""Words that `--stack` takes for several settings at once; each number with its source.

nccl: launch and alpha of NCCL's all_reduce on a node of 8 H100 by nccl-tests, the mean of the two fits of docs/fidelity.md:
13.44 and 15.79 us, 1.082 us and 682 ns. Only their sum is known well.
"""

from collections.abc import Mapping
from types import MappingProxyType

STACKS: Mapping[str, str] = MappingProxyType({"nccl": "launch=14.6us,alpha=880ns"})
