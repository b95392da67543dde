"""The UB-Mesh paper as a registered `Paper`: its rows, counted on built topologies or computed from its tables.

Rows about collectives and routes are computed on built topologies.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.topology.facts.notices import direct_notices, flooded_notices
from emu.topology.facts.routing_tables import table_size
from emu.topology.paths.path_check import cycle
from emu.units import format_time, seconds
from launch.papers.networks import build_once, parts
from launch.papers.paper import AnswerFunction, FittedInput, Paper, check_formula, from_nothing, register
from launch.papers.targets import Answer, Target
from launch.papers.ub_mesh.counts import CLOS, SUPERPOD, WORDS, capex_ratio
from launch.papers.ub_mesh.figures import FIGURES
from launch.papers.ub_mesh.setting import DEVICE, STACK, UBMeshSteps
from launch.papers.ub_mesh.setting import NOTES as STEPS
from launch.papers.ub_mesh.training import TRAINING

_FAILED = 3


def _rings() -> Answer:
    """Return which share of the block the busiest link carries in a multi-ring all_reduce."""
    cases = []
    for n in (5, 7, 8, 9, 16):
        plan = algorithm("all_reduce", "multi-ring").schedule(n).expand()
        _, slots = np.unique(plan.src.astype(np.int64) * n + plan.dst, return_counts=True)
        cases.append((f"V on the busiest link, n={n}", float(slots.max()) / plan.n_slots, 2 / n))
    return check_formula(cases)


def _backup() -> Answer:
    """Return how many more links a neighbour of a failed NPU has to the backup NPU."""
    rack = build_once("ub-mesh:rack-full")
    near = rack.links.dst[(rack.links.src == _FAILED) & (rack.links.dst < 64)].astype(np.int64)
    backup = np.full(len(near), int(rack.place(64, [_FAILED])[_FAILED]))
    more = set((rack.routes(near, backup, np.zeros_like(near)).hops - 1).tolist())
    words = "no LRS of table 3 has ports for all boards and for the backup NPU, so two LRS of a back-plane stand for one"
    return Answer(" or ".join(f"+{hops} hop" for hops in sorted(more)), (words,))


def _lanes() -> Answer:
    """Return the number of virtual lanes of a rack with detours, and whether it is two and no pairs can deadlock."""
    rack = build_once("ub-mesh:rack:route=detour")
    pairs = np.stack(np.meshgrid(np.arange(64), np.arange(64)), -1).reshape(-1, 2)
    src, dst = pairs[pairs[:, 0] != pairs[:, 1]].T
    routes = rack.routes(np.repeat(src, 16), np.repeat(dst, 16), np.tile(np.arange(16), len(src)))
    assert routes.virtual is not None
    lanes = int(routes.virtual.max()) + 1
    words = "a rule of Emu's own, as TFC is not published; all pairs of a rack, 16 ways each, wait in no circle"
    return Answer(float(lanes), (words,), holds=lanes == 2 and cycle(routes, routes.virtual) == [])


_HANDLING_FS = 10**9  # a node acts on a notice in 1 us, for which no source has a number


def _tables() -> Answer:
    """Return how many entries a routing table has by structured addresses, and with one for each destination."""
    words = {"a rack": "ub-mesh:rack", "a pod": "ub-mesh:pod", "a SuperPod": SUPERPOD}
    sizes = {name: table_size(build_once(word), 0) for name, word in words.items()}
    found = ", ".join(f"{of.structured} of {of.flat} in {name}" for name, of in sizes.items())
    how = "segments are those to which the built routes leave NPU 0 by the same links, by the order of digits with the fewest"
    return Answer(
        found, (how, "significantly: to less than a quarter"), holds=all(4 * of.structured < of.flat for of in sizes.values())
    )


def _notices() -> Answer:
    """Return when all whose paths change know of a failed link of a rack, hop by hop and by direct notices."""
    rack, told, holds = build_once("ub-mesh:rack:route=detour"), [], True
    for name, cable in (("X", (0, 1)), ("Y", (0, 8))):
        direct, flooded = (way(rack, cable, _HANDLING_FS) for way in (direct_notices, flooded_notices))
        times = (format_time(seconds(of.last_fs)) for of in (direct, flooded))
        told.append(f"a link of {name}: {' for '.join(times)}, {direct.sent} for {flooded.sent} notices")
        holds &= direct.last_fs < flooded.last_fs and direct.sent < flooded.sent
    how = (
        "a node acts on a notice in 1 us, which is assumed; a hop takes 300 ns; all NPUs of a rack have detours over each link"
    )
    without = "without detours (route=shortest) those to be told are next to the link, and hear as soon hop by hop"
    return Answer("; ".join(told), (how, without), holds=holds)


def _experts() -> Answer:
    """Return how many tokens of experts go between boards, and over all links, if a board's copies are made on the board."""
    rack, plans = build_once("ub-mesh:rack"), (("flat", 64), ("hierarchical", (8, 8)))
    between, over = [], []
    for name, shape in plans:
        sends = algorithm("dispatch", name).schedule(shape).expand()
        src, dst = sends.src.astype(np.int64), sends.dst.astype(np.int64)
        between.append(int((src // 8 != dst // 8).sum()))
        over.append(int(rack.routes(src, dst, np.zeros_like(src)).hops.sum()))
    words = (
        f"between boards {between[1]} for {between[0]} copies, over all links {over[1]} for {over[0]}",
        "8 experts of 64 for a token, 16 tokens a rank; a combine goes the same ways back",
    )
    saved = [100 * (1 - hierarchical / flat) for flat, hierarchical in (between, over)]
    found = f"{saved[0]:.0f} % less between boards, {saved[1]:.0f} % less over all links"
    return Answer(found, words, holds=min(saved) > 0)


_DIGITS = 4  # decimals in which the rates of switches are equal


def _share(paper: Any, target: Target) -> float:
    """Return the share, in per cent, that the axes of a row have of all bytes in table 1."""
    volume = {each.id.split("-")[2]: paper.value(each) for each in paper.targets if each.id.endswith("-vol")}
    share: float = 100 * sum(volume[axis] for axis in target.given["axis"].split("+")) / sum(volume.values())
    return share


def _share_of_row(paper: Any, row: str) -> float:
    """Return the share that a row of table 1 prints, as computed."""
    return _share(paper, next(each for each in paper.targets if each.id == f"ub-t1-{row}"))


def _share_inside_racks(paper: Any, _: Target) -> Answer:
    """Return which share of bytes stays in a rack: that of TP and SP. Two NPUs of a rack are 2 hops apart at most."""
    share = _share_of_row(paper, "97")
    return Answer(f"{share:.1f} % of the bytes", ("of TP and SP (table 1), which are in a rack",), holds=share > 50)


def _failures_of_a_switch(paper: Any, target: Target) -> float:
    """Return the failures of a switch in a year, which are equal for LRS and HRS of both systems to four digits.

    Raises:
        InputError: the rates differ.
    """
    rates = []
    for name, word in (("ub", SUPERPOD), ("clos", CLOS)):
        failures = map(float, target.given[name].split("/"))
        rates += [each / parts(word, part) for each, part in zip(failures, ("LRS", "HRS"), strict=True)]
    if len({round(rate, _DIGITS) for rate in rates}) > 1:
        raise InputError(f"the rates differ: {', '.join(map(str, rates))}")
    return sum(rates) / len(rates)


_TIMES: Mapping[str, Callable[[], Answer | float | str]] = {
    "ub-mr-opt": _rings,
    "ub-backup": _backup,
    "ub-vl": _lanes,
    "ub-table": _tables,
    "ub-notice": _notices,
    "ub-moe": _experts,
}
_ANSWERS: Mapping[str, AnswerFunction] = {
    "ub-t1-": _share,
    "ub-t1-dp2": lambda paper, _: f"{_share_of_row(paper, 'DP-pct'):.2f};{_share_of_row(paper, 'TP-pct'):.1f}",
    "ub-hops": _share_inside_racks,
    "ub-afr-sw": _failures_of_a_switch,
    "ub-capex-": capex_ratio,
    **TRAINING,
    **from_nothing(_TIMES),
}
_BUILT = ("ub-mesh:rack-full", "ub-mesh:pod", SUPERPOD, CLOS)


def _assumptions() -> tuple[str, ...]:
    """Return the assumptions of all rows."""
    notes = (
        "rows of table 3 are counted on the built topologies `ub-mesh:rack-full`, `pod`, `superpod` and `clos`",
        "no row is computed from its own printed value; its note says from which inputs it is",
    )
    return *notes, *STEPS, *_assumptions_on_topologies()


def _assumptions_on_topologies() -> Iterator[str]:
    """Yield the assumptions on the built topologies, each after the topologies that have it, if not all have it."""
    words_of: dict[str, list[str]] = {}
    for word in _BUILT:
        for told in build_once(word).assumptions:
            words_of.setdefault(told, []).append(word)
    for told, words in words_of.items():
        yield told if len(words) == len(_BUILT) else f"{', '.join(f'`{word}`' for word in words)}: {told}"


_DEVICE_SHARES = FittedInput(
    "the shares of peak of the device, which no source prints, and choices of the plan that were made after steps were seen; "
    "the end of the page names them"
)
PAPER = register(
    Paper(
        Path(__file__).parent,
        title="UB-Mesh",
        source="Liao et al., UB-Mesh (arXiv:2503.20377).",
        answers=_ANSWERS,
        fitted={
            "ub-capex-": FittedInput("the reading of the prices, one of three that the paper leaves open", rows=("ub-capex-",)),
            **dict.fromkeys(("ub-f17", "ub-f19", "ub-f20", "ub-lin", "ub-7pct"), _DEVICE_SHARES),
        },
        arithmetic=("ub-t1-", "ub-hops"),
        words=WORDS,
        figures=FIGURES,
        assumptions=_assumptions,
        steps_of=partial(UBMeshSteps, device_name=DEVICE, software=STACK),
    )
)
