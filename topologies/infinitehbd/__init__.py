"""InfiniteHBD: nodes of GPUs on a line, joined to rings of any length by transceivers that are optical switches (OCSTrx).

Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching Transceivers
(SIGCOMM 2025). `fibres` has the bundles of OCSTrx and their states, `rings` the GPUs of a ring in order, `orchestration`
Algorithms 1-5, `system` the rings as the catalogue knows them, `binary` the wiring for all-to-all (appendix G).
"""

from topologies.infinitehbd import binary, system

__all__ = ["binary", "system"]
