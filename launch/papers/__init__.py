"""Tables and figures of papers and vendors, computed by Emu: a folder for each paper, read by `emu repro`."""
