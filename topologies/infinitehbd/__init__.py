"""InfiniteHBD: nodes of GPUs on a line, joined to rings of any length by transceivers that are optical switches (OCSTrx).

Source: Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching
Transceivers (SIGCOMM 2025). `ring_line` has the rings of the catalogue and their links, `binary` the wiring for all-to-all
(appendix G), `node_lines` that of two dimensions (7), `ocstrx_plan` the sizes of all. `orchestration` chooses the nodes of
rings around faults, `ocstrx_bundles` has the fibres and the states that join two nodes, `gpu_rings` the GPUs of a ring in
order.
"""

from topologies.infinitehbd import binary, node_lines, ring_line

__all__ = ["binary", "node_lines", "ring_line"]
