"""Alibaba HPN: a backend network for training in which a message is hashed once.

Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024). A rail is the NICs of equal
place in every host, a segment the hosts under the same ToRs, a plane all that port 0, or port 1, of the NICs can reach.
`pod` is the system, `compared` what it is held against; `paths` is how a host picks among the paths (6.1, appendix B).
"""

from topologies.hpn import compared, paths, pod

__all__ = ["compared", "paths", "pod"]
