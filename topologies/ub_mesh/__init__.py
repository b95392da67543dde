"""UB-Mesh: an nD full mesh of NPUs and racks, with switches only where the mesh ends.

Source: Liao et al., UB-Mesh: a Hierarchically Localized nD-FullMesh Datacenter Network Architecture (arXiv:2503.20377). X is a
board of NPUs, Y the boards of a rack, Z a row of racks, alpha a column of them; xL is a link of L lanes; LRS and HRS are the
low- and the high-radix switches. `pod` has the system and the repair of a rack, `parts` and `wires` its parts,
`mesh_baselines` the networks it is compared with. `mesh_routes` has its routing and its notices of failures.
"""

from topologies.ub_mesh import mesh_baselines, pod

__all__ = ["mesh_baselines", "pod"]
