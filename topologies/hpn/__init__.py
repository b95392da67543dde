"""Alibaba HPN: a backend network for training in which a message is hashed once.

Source: Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024). A rail is the NICs of
equal place in every host, a segment the hosts under the same ToRs, a plane all that port 0, or port 1, of the NICs can reach.
`hpn_pod` has the system, and the networks it is compared with. Each is an `HpnPlan` (`host_plan`), of which
`hpn_wiring` makes a topology. `hash_routing` has the routes of messages.
"""

from topologies.hpn import hpn_pod

__all__ = ["hpn_pod"]
