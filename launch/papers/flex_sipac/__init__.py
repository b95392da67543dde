"""The Flex-SiPAC paper (J. Opt. Commun. Netw. 16, 2024)."""
