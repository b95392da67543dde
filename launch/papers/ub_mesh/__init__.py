"""The UB-Mesh paper (Liao et al., arXiv:2503.20377)."""
