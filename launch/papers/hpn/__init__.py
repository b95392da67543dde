"""The rows of the Alibaba HPN paper (SIGCOMM 2024), computed by Emu."""
