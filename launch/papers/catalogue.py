"""The papers whose tables and figures Emu computes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from emu.study.planning.search.result_cache import ResultCache
from launch.papers.flex_sipac.report import FlexSiPACPaper
from launch.papers.hpn.report import HpnPaper
from launch.papers.hpn.training import HpnSteps
from launch.papers.infinitehbd.report import InfiniteHBDPaper
from launch.papers.infinitehbd.setting import InfiniteHBDSteps
from launch.papers.paper import Paper
from launch.papers.railx.report import RailXPaper
from launch.papers.ub_mesh.report import UBMeshPaper
from launch.papers.ub_mesh.setting import UBMeshSteps

PAPERS: Mapping[str, Callable[[ResultCache], Paper]] = MappingProxyType(
    {
        "infinitehbd": lambda kept: InfiniteHBDPaper(steps=InfiniteHBDSteps(kept)),
        "flex-sipac": lambda _: FlexSiPACPaper(),
        "hpn": lambda kept: HpnPaper(steps=HpnSteps(kept)),
        "railx": lambda _: RailXPaper(),
        "ub-mesh": lambda kept: UBMeshPaper(steps=UBMeshSteps(kept)),
    }
)
