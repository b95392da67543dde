"""Flex-SiPAC (J. Opt. Commun. Netw. 16, 2024), worked out again."""
