"""The rows of the UB-Mesh paper (Liao et al., arXiv:2503.20377), computed by Emu."""
