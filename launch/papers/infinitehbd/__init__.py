"""The InfiniteHBD paper (Shou et al., SIGCOMM 2025)."""
