"""The time that a computation takes on one NPU, by a model of the device and by measured kernels."""
