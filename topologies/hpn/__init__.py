"""Alibaba HPN: a backend network for training in which a message is hashed once.

Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024). A rail is the NICs of equal
place in every host, a segment the hosts under the same ToRs, a plane all that port 0, or port 1, of the NICs can reach.
`pod` is the system, `compared` what it is held against; both are a `plan`, whose wires are laid by `wiring` and whose hosts
given out by `placement`. `routes` has the ways of messages.
"""

from topologies.hpn import compared, pod

__all__ = ["compared", "pod"]
