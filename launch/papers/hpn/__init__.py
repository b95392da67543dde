"""Alibaba HPN (SIGCOMM 2024), worked out again."""
