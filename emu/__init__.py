"""Emu: a training cluster that is not there. The schedule that is timed is the one that ran, and the one that is proved."""

__version__ = "0.1.0"
