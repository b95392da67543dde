"""RailX: nodes of m x m chips in a grid, whose rails optical circuit switches join to rings.

Source: Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems
(arXiv:2507.18889). `rail_wiring` has the links, `rail_routing` Algorithm 1, `grid_placement` Algorithm 2, `configurations` the
settings of the switches in the catalogue, `plan_mapping` that for the axes of a plan.
"""

from topologies.railx.configurations import dragonfly, hyperx, hyperx_nonminimal, split, torus
from topologies.railx.plan_mapping import mapped

__all__ = ["dragonfly", "hyperx", "hyperx_nonminimal", "mapped", "split", "torus"]
