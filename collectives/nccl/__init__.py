"""NCCL's own choice of algorithm, protocol and channels for a request, by its tuning model (NVIDIA/nccl v2.30.7-1).

`constants` has its numbers, `graphs` the channels that its search finds, `tuning` the time that it expects of each algorithm
and protocol, `choice` its choice and the schedule of the catalogue that does the same.
"""

from collectives.nccl import choice

__all__ = ["choice"]
