"""The device that is here, measured by a few kernels."""
