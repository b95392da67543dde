"""How many rows of papers does a model meet that knows nothing? Stubs stand for what Emu computes, and should meet none.

    python -m benchmarks.nullmodel [ROW ...]

A row is the id of one of `emu repro all`, or its beginning. Exit code 1 if a stub meets a row that is built or fitted.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.swap.trial import caches
from emu.study.faults.waste import Waste
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.catalogue import PAPERS
from launch.papers.infinitehbd.setting import DENSE, plan_of
from launch.papers.infinitehbd.times import PlacedStep
from launch.papers.paper import IS, Paper
from launch.papers.targets import BASES, BUILT, FITTED, MET, OWN_FIT, Answer, Target, number, with_others

_NPUS, _FAULTY, _USABLE = 2880, 0.02, 0.92  # 6 % are wasted, the mean of what InfiniteHBD prints
_WASTE = Waste("any", _NPUS, 1, 1, np.ones(1), np.zeros(1), np.array([_FAULTY]), np.array([int(_USABLE * _NPUS)]), 1, _NPUS)
_STEP = SimpleNamespace(step_time_s=1.0, mfu=0.3, peak_memory_bytes=0, plan="any", topology="any")
# Functions of `launch.papers` that time, draw or place, by where they are: what each returns, whatever fabric it is asked of.
SAME: Mapping[str, object] = {
    **{f"networks.{name}": 1e-3 for name in ("collective_s", "plan_s", "time_s", "all_reduces_s")},
    "paper_steps.step_of": _STEP,
    "infinitehbd.costs.aggregate": 1e4,
    "infinitehbd.times.step_s": 1.0,
    "infinitehbd.times.placed_step": PlacedStep(1.0, 0.05, 0.05, 0.5),
    "infinitehbd.traffic.crossing": 6.0,
    "infinitehbd.training.best_plan": (plan_of(DENSE, 8, 16, 8), _STEP, "any"),
    "infinitehbd.waste.side_by_side": 0.06,
    **{f"infinitehbd.waste.{name}": _WASTE for name in ("on_trace", "at_rate", "waste_of")},
    "railx.counts.availability": 93.0,
    "railx.counts.mean_largest_job": 3900.0,
    **{f"railx.setting.{name}": 1e-3 for name in ("request_s", "gap_s")},
    "railx.setting.small_step": (1e-3, {}),
    "railx.times.ring_bound": 1e-3,
    **{f"railx.traffic.{name}": 1.0 for name in ("saturated_throughput", "latency", "all_to_all")},
}
_COMPARE = ("M", "S")  # classes of rows that compare fabrics; one that counts or follows a formula is for `benchmarks.swap`
_KEPT = ("build_once", "stages", "model_of")  # caches of what no stub stands for
Stub = Callable[[Paper, Target], Answer]  # answers in the place of Emu


def mean_of_figure(paper: Paper, target: Target) -> Answer:
    """Return the mean of the numbers that the paper prints at the row's place in its unit; none where all are one number."""
    beside = [each for each in paper.targets if (each.table, each.unit) == (target.table, target.unit)]
    printed = [found for each in beside if each.kind != "H" and (found := number(each.value)) is not None]
    return Answer(float(np.mean(printed)) if len(set(printed)) > 1 else None)


def no_effect(paper: Paper, target: Target) -> Answer:
    """Return the number from which the row's effect is measured: no gain, or what the row beside it has without an effect."""
    if target.other is not None:
        return no_effect(paper, target.other)
    return Answer(number(target.value) if target.against is None else target.unchanged)


def fabrics_alike(paper: Paper, target: Target) -> Answer:
    """Return what the row's own function makes of stubs, inside of `stubs`; none where it asks no stub, or fails."""
    before = _ASKED.total()
    for kept in _caches():
        kept.cache_clear()
    try:
        found = Answer(None) if IS in target.given or target.kind not in _COMPARE else paper.answer(target)
    except Exception:
        return Answer(None)
    return found if _ASKED.total() > before else Answer(None)


STUBS: Mapping[str, Stub] = {"mean of the figure": mean_of_figure, "no effect": no_effect, "all fabrics alike": fabrics_alike}
_ASKED = Counter[str]()  # how often stubs were asked


@contextmanager
def stubs(same: Mapping[str, object] = SAME) -> Iterator[None]:
    """Put constants in the place of functions of the papers, wherever these are imported, as long as the context lasts."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith("launch.papers.")}
    for_each = {}
    for path, answer in same.items():
        module, _, name = f"launch.papers.{path}".rpartition(".")
        for_each[id(vars(modules[module])[name])] = _constant(path, answer)
    found = [(user, name, of) for user in modules.values() for name, of in vars(user).items() if id(of) in for_each]
    for user, name, of in found:
        setattr(user, name, for_each[id(of)])
    try:
        yield
    finally:
        for user, name, of in found:
            setattr(user, name, of)
        for kept in _caches():
            kept.cache_clear()


@cache
def _caches() -> Sequence[Any]:
    return caches(_KEPT)


def _constant(path: str, answer: object) -> Callable[..., object]:
    def stub(*_: object, **__: object) -> object:
        _ASKED[path] += 1
        return answer

    return stub


def meets(stub: Stub, paper: Paper, target: Target) -> bool:
    """Return whether the answers of a stub meet a row; one that an input of Emu is fitted on counts, too."""
    if target.kind == "H" or (stub is no_effect and target.against is None):
        return False
    answers = {each.id: stub(paper, each) for each in with_others([target])}
    return paper.judge(target, answers).verdict in (MET, OWN_FIT)


def main(words: list[str]) -> int:
    """Print how many rows of each paper and basis each stub meets, and which; 1 if any is built or fitted."""
    rows, met, named = Counter[tuple[str, str]](), Counter[tuple[str, str, str]](), list[str]()
    with closing(ResultCache(None)) as kept, stubs():
        for name, make in PAPERS.items():
            paper = make(kept)
            for target in paper.targets:
                if target.kind == "H" or not target.id.startswith(tuple(words) or ""):
                    continue
                of = name, paper.basis(target)
                rows[of] += 1
                by = [each for each, stub in STUBS.items() if meets(stub, paper, target)]
                met.update((*of, each) for each in by)
                named += [f"{target.id} ({of[1]}): {', '.join(by)}"] if by else []
    sys.stdout.write(f"| paper | basis | rows | {' | '.join(STUBS)} |\n|---|---|---|{'---|' * len(STUBS)}\n")
    for of in ((name, basis) for name in PAPERS for basis in BASES if rows[name, basis]):
        sys.stdout.write(f"| {' | '.join(map(str, (*of, rows[of], *(met[(*of, each)] for each in STUBS))))} |\n")
    sys.stdout.write("\n" + "".join(f"- {each}\n" for each in named))
    return int(any(count for (_, basis, _), count in met.items() if basis in (BUILT, FITTED)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
