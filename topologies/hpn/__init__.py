"""Alibaba HPN: a backend network for training in which a message is hashed once.

Source: Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024). A rail is the NICs of
equal place in every host, a segment the hosts under the same ToRs, a plane all that port 0, or port 1, of the NICs can reach.
`pod` is the system, and `compared` has the networks it is compared with. Both are a `plan`, which `wiring` makes a topology and
whose hosts `placement` gives to jobs. `routes` has the routes of messages.
"""

from topologies.hpn import compared, pod

__all__ = ["compared", "pod"]
