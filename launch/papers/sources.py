"""The sources of the papers, and the notes below their rows."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SOURCES: Mapping[str, tuple[str, str]] = MappingProxyType(  # title and citation, by the name of the command
    {
        "infinitehbd": (
            "InfiniteHBD",
            "Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching "
            "Transceivers (SIGCOMM 2025).",
        ),
        "railx": (
            "RailX",
            "Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems "
            "(arXiv:2507.18889).",
        ),
        "flex-sipac": (
            "Flex-SiPAC",
            "Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. "
            "Netw. 16 (2024).",
        ),
        "ub-mesh": ("UB-Mesh", "Liao et al., UB-Mesh (arXiv:2503.20377)."),
        "hpn": (
            "Alibaba HPN",
            "Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024).",
        ),
    }
)


def notes_of(name: str) -> str:
    """Return the text below the rows of a paper, in Markdown."""
    return (Path(__file__).parent / name.replace("-", "_") / "notes.md").read_text(encoding="utf-8")
