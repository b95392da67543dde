"""The device of this machine, measured by a few kernels."""
