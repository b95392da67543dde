"""Blocks that model architectures share: each a torch module, and beside it the operators that it runs."""
