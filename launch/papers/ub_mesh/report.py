"""The rows of the UB-Mesh paper: counted on the topologies that are built, or worked out from what its tables give."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from emu.errors import InputError
from launch.papers.targets import Answer, Row, Target, judged, read_targets
from launch.papers.ub_mesh.wiring import (
    CLOS,
    POD,
    RACK,
    SUPERPOD,
    built,
    lanes,
    lrs_of_npus,
    rack_lanes_to_hrs,
    same,
    tier,
)

TABLES = ("1", "2", "3", "5", "6", "6.4")
_TARGETS = Path(__file__).parent / "targets.csv"
_HOURS = 8760  # of a year
_NOTES = (
    "rows of table 3 are counted on the topologies `ub-mesh:rack-full`, `pod`, `superpod` and `clos` as they are built",
    "other rows are worked out from what the paper's tables give, never from the value of a row",
)
# Why a row of the paper does not follow from what the paper gives.
_READINGS = {
    "ub-t1-TP-vol": "360 MB x 4992 is 1755 GB, which the shares need too: 1775 is a misprint",
    "ub-t1-PP-pct": "0.147 is printed without its last decimals",
    "ub-av-ub": "98.8 takes an MTTR of at most 74.8 min",
    "ub-av-clos": "91.6 takes an MTTR of at least 75.4 min: no one MTTR gives both",
    "ub-opt93": "93.75 is printed without its decimals",
    "ub-capex-net": "2.46 lies where the shares are rounded: 0.67 and 0.20 give 2.42",
    "ub-2.04": "2.04 takes a performance of 0.978 of the Clos; 93.2 to 95.9 % are printed",
}


@dataclass(eq=False)
class Paper:
    """The rows by table."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))

    def rows(self, table: str) -> Iterator[Row]:
        """Of a table, in the order of the paper's data."""
        for target in self.of(table):
            yield judged(target, self.answer(target))

    def of(self, table: str) -> list[Target]:
        """Its rows as printed."""
        return [target for target in self.targets if target.table == table]

    def answer(self, target: Target) -> Answer:
        """What Emu says of a row; why not, where it says nothing."""
        notes = (_READINGS[target.id],) if target.id in _READINGS else ()
        for name, count in _COUNTED.items():
            if target.id == name:
                return Answer(count(), notes)
        for words, work in _WORKED.items():
            if target.id.startswith(words):
                try:
                    return Answer(work(self, target), notes)
                except InputError as error:
                    return Answer(None, (str(error),))
        return Answer(None, ("the paper gives no counts of cables; any 72:6:4:1 prints these shares",))

    def assumptions(self) -> tuple[str, ...]:
        """Of all rows."""
        return tuple(
            dict.fromkeys([*_NOTES, *(told for word in (RACK, POD, SUPERPOD, CLOS) for told in built(word).assumptions)])
        )

    def volume(self, axis: str) -> float:
        """GB of an axis of table 1, as its transfers compute."""
        return _volume(next(each for each in self.targets if each.id == f"ub-t1-{axis}-vol"))


def _volume(target: Target) -> float:
    return sum(prod(map(float, transfer.split("x"))) for transfer in target.given["transfers"].split("+")) / 1024


def _share(paper: Paper, target: Target) -> float:
    every = [each.id.split("-")[2] for each in paper.targets if each.id.endswith("-vol")]
    return 100 * sum(map(paper.volume, target.given["axis"].split("+"))) / sum(map(paper.volume, every))


def _of(target: Target, name: str) -> float:
    return float(target.given[name])


def _hidden(paper: Paper, target: Target) -> float:
    return _of(target, "heads") * _of(target, "head")


def _parameters(paper: Paper, target: Target) -> float:
    return _of(target, "layers") * _hidden(paper, target) ** 2 * (4 + 8 * _of(target, "experts")) / 1e12


def _failures(paper: Paper, target: Target) -> float:
    return sum(map(float, target.given["afrs"].split("+")))


def _mtbf(paper: Paper, target: Target) -> float:
    return _HOURS / _failures(paper, target)


def _availability(paper: Paper, target: Target) -> float:
    mtbf = _of(target, "mtbf")
    return 100 * mtbf / (mtbf + _of(target, "minutes") / 60)


def _of_each_switch(paper: Paper, target: Target) -> float:
    """Of LRS and HRS of both systems; the mean, to which each is equal in the digits that are printed."""
    rates = []
    for name, word in (("ub", SUPERPOD), ("clos", CLOS)):
        failures = map(float, target.given[name].split("/"))
        rates += [each / built(word).bill[part] for each, part in zip(failures, ("LRS", "HRS"), strict=True)]
    if len({round(rate, target.digits) for rate in rates}) > 1:
        raise InputError(f"the rates differ: {', '.join(map(str, rates))}")
    return sum(rates) / len(rates)


def _efficiency(paper: Paper, target: Target) -> float:
    share = _of(target, "share")
    return _of(target, "performance") / ((1 - share) / _of(target, "capex") + share * _of(target, "opex"))


def _saved_lanes() -> float:
    ub, clos = (
        built(word).links.bandwidth_Bps[tier(built(word), of)].sum() for word, of in ((SUPERPOD, "HRS"), (CLOS, "spine"))
    )
    return 100 * (1 - float(ub / clos))


def _up() -> float:
    rack = built(RACK)
    of_npus = (rack.links.src < rack.n_npus) & (rack.links.dst >= rack.n_npus)
    return same(lanes(rack, of_npus)[: rack.n_npus])


_PLANES = 4
_COUNTED: dict[str, Callable[[], float | str]] = {
    "ub-npu-rack": lambda: float(built(RACK).n_npus),
    "ub-pod": lambda: float(built(POD).n_npus),
    "ub-sp": lambda: built(SUPERPOD).n_npus / built(RACK).n_npus,
    "ub-lrs-plane": lambda: built(RACK).bill["LRS"] / _PLANES,
    "ub-lrs-rack": lambda: float(built(RACK).bill["LRS"]),
    "ub-up": _up,
    "ub-lanes": lambda: same(lanes(built(SUPERPOD))[: built(SUPERPOD).n_npus]),
    "ub-rack-links": lambda: same(rack_lanes_to_hrs(built(SUPERPOD))),
    "ub-lrs-x72": lambda: same(lrs_of_npus(built(SUPERPOD), built(RACK).bill["LRS"] // _PLANES)),
    "ub-hrs-ub": lambda: float(built(SUPERPOD).bill["HRS"]),
    "ub-hrs-clos": lambda: float(built(CLOS).bill["HRS"]),
    "ub-lrs-all": lambda: f"{built(SUPERPOD).bill['LRS']};{built(CLOS).bill['LRS']}",
    "ub-hrs98": lambda: 100 * (1 - built(SUPERPOD).bill["HRS"] / built(CLOS).bill["HRS"]),
    "ub-opt93": _saved_lanes,
}
_WORKED: dict[str, Callable[[Paper, Target], float]] = {
    "ub-64k": lambda _, target: _of(target, "times") * built(POD).n_npus,
    **{f"ub-t1-{axis}-vol": lambda _, target: _volume(target) for axis in ("TP", "SP", "EP", "PP", "DP")},
    "ub-t1-": _share,
    **{f"ub-t5-{name}-h": _hidden for name in ("LLAMA-70B", "GPT3-175B", "Dense-1T", "GPT4-2T", "MoE-10T")},
    "ub-t5-": _parameters,
    "ub-afr-sw": _of_each_switch,
    "ub-av-diff": lambda _, target: _of(target, "more") - _of(target, "less"),
    "ub-t6-ub-sum": _failures,
    "ub-t6-clos-sum": _failures,
    "ub-t6-ub-mtbf": _mtbf,
    "ub-t6-clos-mtbf": _mtbf,
    "ub-t6-x": lambda _, target: _of(target, "mtbf") / _of(target, "other"),
    "ub-av-": _availability,
    "ub-capex-net": lambda _, target: (1 - _of(target, "after")) / (1 - _of(target, "before")),
    "ub-2.04": _efficiency,
}
