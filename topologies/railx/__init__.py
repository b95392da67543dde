"""RailX: nodes of m x m chips in a grid, whose rails optical circuit switches join to rings.

Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems
(arXiv:2507.18889). `wiring` has what is joined to what, `routing` Algorithm 1, `placement` Algorithm 2, `configurations` the
settings of the switches that the catalogue knows.
"""

from topologies.railx.configurations import dragonfly, hyperx, hyperx_nonminimal, split, torus

__all__ = ["dragonfly", "hyperx", "hyperx_nonminimal", "split", "torus"]
