"""UB-Mesh: an nD full mesh of NPUs and racks, with switches only where it ends.

Liao et al., UB-Mesh: a Hierarchically Localized nD-FullMesh Datacenter Network Architecture (arXiv:2503.20377). X is a board
of NPUs, Y the boards of a rack, Z a row of racks, alpha a column of them; xL is a link of L lanes; LRS and HRS are the low-
and the high-radix switches. `rack` and `pod` are the system, `baselines` and `clos` what it is held against, `apr`,
`source_route`, `backup` and `recovery` how it routes and mends.
"""

from topologies.ub_mesh import baselines, clos, pod, rack

__all__ = ["baselines", "clos", "pod", "rack"]
