"""Published figures of kernels beside the model of devices."""
