"""The Alibaba HPN paper (SIGCOMM 2024)."""
