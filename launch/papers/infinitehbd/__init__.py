"""The InfiniteHBD paper (Shou et al., SIGCOMM 2025): tables 2, 4 and 5, whose steps are estimated as any other."""
