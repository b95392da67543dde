"""The registry of papers: importing it loads each folder here that has printed rows."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from emu.study.planning.search.result_cache import ResultCache
from launch.papers.paper import REGISTERED, Paper


def _read_folders() -> Mapping[str, Callable[[ResultCache], Paper]]:
    """Import the report of each folder with printed rows, and return the papers by the names of their commands."""
    for rows in sorted(Path(__file__).parent.glob("*/targets.csv")):
        import_module(f"{__package__}.{rows.parent.name}.report")
    return {name: paper.with_cache for name, paper in REGISTERED.items()}


PAPERS = _read_folders()
