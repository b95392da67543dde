"""What papers and vendors printed, worked out again: a folder each, read by `emu repro`."""
