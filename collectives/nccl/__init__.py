"""NCCL's own choice of algorithm, protocol and channels for a request, by its tuning model (NVIDIA/nccl v2.30.7-1).

`constants` has its numbers, `graphs` the channels that its search finds, `tuning` what it expects of each algorithm and
protocol, `choice` what it then takes, and which schedule of the catalogue does that.
"""

from collectives.nccl import choice

__all__ = ["choice"]
