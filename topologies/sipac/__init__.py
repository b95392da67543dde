"""SiPAC and Flex-SiPAC: silicon photonics wired as BCube, with wavelengths between CUs where BCube has cables.

Source: Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. Netw. 16
(2024). A CU is a computing unit, an NPU here; a WSS is a wavelength-selective switch. `levels` says which CUs are neighbours,
`assignment` how many wavelengths two of them get, `combs` which ones, `jobs` what a change of jobs moves.
"""

from topologies.sipac import sipac_system

__all__ = ["sipac_system"]
