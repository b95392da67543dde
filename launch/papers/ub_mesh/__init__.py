"""The UB-Mesh paper (Liao et al., arXiv:2503.20377): what follows from its wiring and its own figures."""
