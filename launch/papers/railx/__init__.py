"""The RailX paper (arXiv:2507.18889)."""
