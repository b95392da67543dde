"""The rows of the RailX paper (arXiv:2507.18889), computed by Emu."""
