"""The papers whose tables and figures are worked out again."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from emu.study.planning.search.kept import Kept
from launch.papers.flex_sipac.report import Paper as FlexSiPAC
from launch.papers.hpn.report import Paper as Hpn
from launch.papers.hpn.trained import Steps as HpnSteps
from launch.papers.infinitehbd.report import Paper as InfiniteHBD
from launch.papers.infinitehbd.setting import Steps
from launch.papers.paper import Paper
from launch.papers.railx.report import Paper as RailX
from launch.papers.ub_mesh.report import Paper as UBMesh
from launch.papers.ub_mesh.steps import Steps as UBSteps

PAPERS: Mapping[str, Callable[[Kept], Paper]] = MappingProxyType(
    {
        "infinitehbd": lambda kept: InfiniteHBD(steps=Steps(kept)),
        "flex-sipac": lambda _: FlexSiPAC(),
        "hpn": lambda kept: Hpn(steps=HpnSteps(kept)),
        "railx": lambda _: RailX(),
        "ub-mesh": lambda kept: UBMesh(steps=UBSteps(kept)),
    }
)
