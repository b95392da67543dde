"""Figure 21 of the UB-Mesh paper: the price of other systems as a multiple of UB-Mesh's, at public prices."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emu.study.cost.cost import PriceBook, cost, read_book
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from launch.papers.ub_mesh.counts import CLOS, SUPERPOD

_BOOK = Path(__file__).with_name("prices.toml")
_RACKS, _NPUS, _HRS_LANES, _X4 = 128, 64, 512, 4
_CABLE = "link leaf to spine x4"


@cache
def _book() -> PriceBook:
    """Return the price book of the paper's folder."""
    return read_book(_BOOK, _BOOK.name)


def _network(word: str) -> float:
    """Return the dollars of a topology without its NPUs."""
    return cost(build_once(word), _book()).dollars


def _dollars_of_racks(word: str, lanes: int) -> float:
    """Return the dollars of 128 racks and their spines, with this number of lanes out of a rack for each NPU."""
    parts, out = _book().of(build_once(word)).parts, _RACKS * _NPUS * lanes
    return _RACKS * _network(word) + out // _HRS_LANES * parts["HRS"].dollars + out // _X4 * parts[_CABLE].dollars


COMPARED: Mapping[str, Callable[[], float]] = MappingProxyType(
    {
        "2D-FM + x16 Clos": lambda: _network("ub-mesh:superpod-clos"),
        "1D-FM + x16 Clos": lambda: _dollars_of_racks("ub-mesh:rack-1d-fm-a", 16),
        "1D-FM + x32 Clos": lambda: _dollars_of_racks("ub-mesh:rack-1d-fm-b", 32),
        "x64T Clos": lambda: _network(CLOS),
    }
)


NETWORK_SHARE = 0.67  # share of the Clos's price (6.4)


def ratios(share: float) -> dict[str, float]:
    """Return the price of each system as a multiple of UB-Mesh's.

    Args:
        share: The share of the Clos's price that is its network; the rest costs the same in every system.
    """
    rest = _network(CLOS) * (1 - share) / share
    return {name: (network() + rest) / (_network(SUPERPOD) + rest) for name, network in COMPARED.items()}


def _ratio(_: Any, target: Target) -> Answer:
    """Answer the price of a system as a multiple of UB-Mesh's."""
    found = ratios(NETWORK_SHARE)
    name = [*found][int(target.id.rpartition("-")[2]) - 1]
    told = f"{name}; {', '.join(f'{each} {ratio:.2f}' for each, ratio in found.items())}"
    words = f"prices of launch/papers/ub_mesh/{_BOOK.name}: {_book().source}"
    rest = f"NPUs, CPUs and all else cost what is left where {100 * NETWORK_SHARE:g} % of the Clos is network (6.4)"
    cables = "cables between the racks of a pod are active copper: 4 x 4 racks are what it reaches (3.3.3); optics lead to HRS"
    return Answer(found[name], (told, words, rest, cables, "the third has no name in the text: racks of 1D-FM-B, by x32"))


COSTS: Mapping[str, AnswerFunction] = MappingProxyType({f"ub-capex-{place}": _ratio for place in range(1, len(COMPARED) + 1)})
