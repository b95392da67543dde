"""PyTorch's own tests of distributed training, on emulated ranks and beside gloo."""
