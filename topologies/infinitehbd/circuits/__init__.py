"""The setting of OCSTrx: `fibres` has their bundles and states, `orchestration` the nodes of each ring, `rings` its GPUs."""
