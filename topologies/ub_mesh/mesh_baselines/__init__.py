"""The networks with which UB-Mesh is compared (6.2): other `racks`, SuperPods of them, and the `clos` of 8192 NPUs."""

from topologies.ub_mesh.mesh_baselines import racks, superpods

__all__ = ["clos", "racks", "superpods"]
