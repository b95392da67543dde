"""The setting `routing`: shortest, detour and borrow (UB-Mesh 6.3), and multipath (5.1), for routes between two NPUs."""

from typing import Annotated, NamedTuple

from emu.errors import must_be
from emu.topology.catalogue import SettingKind


class Strategy(NamedTuple):
    """The paths that one routing strategy uses."""

    detours: int  # hops that a path may have more than the shortest
    by_channel: bool  # whether the channels of a pair take its paths in turn
    borrow: bool = False  # whether racks of a pod are joined over HRS too


STRATEGIES = {
    "shortest": Strategy(0, by_channel=False),
    "multipath": Strategy(0, by_channel=True),
    "detour": Strategy(1, by_channel=True),
    "borrow": Strategy(1, by_channel=True, borrow=True),
}
BASELINE = "shortest"  # the paper's "baseline routing strategy", against which 6.3 measures detour and borrow


def _read(text: str, name: str) -> str:
    """Return the strategy that a setting's text names."""
    if text not in STRATEGIES:
        raise must_be("topology", name, " or ".join(STRATEGIES), text)
    return text


Routing = Annotated[str, SettingKind(_read, str)]


def without_hrs(name: str, routing: str) -> str:
    """Return the strategy, after the check that a topology without HRS can use it.

    Raises:
        InputError: The strategy is borrow.
    """
    if STRATEGIES[routing].borrow:
        what = " or ".join(name for name, strategy in STRATEGIES.items() if not strategy.borrow)
        raise must_be(name, "routing", what, routing, "HRS to borrow from are in ub-mesh:superpod")
    return routing
