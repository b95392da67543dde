"""RailX (arXiv:2507.18889), worked out again."""
