"""The networks with which UB-Mesh is compared (6.2): other `racks` with the Clos of 8192 NPUs, and SuperPods of them."""

from topologies.ub_mesh.mesh_baselines import racks, superpods

__all__ = ["racks", "superpods"]
