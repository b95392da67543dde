"""Figures and tables that papers and vendors published, computed again: a folder for each paper, read by `emu repro`."""
