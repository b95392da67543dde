"""The rows of the InfiniteHBD paper's tables, worked out again: what is printed is only compared with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from emu.errors import InputError
from emu.model.plan import Plan
from emu.study.training.estimate import Estimated
from launch.papers.infinitehbd.search import Found, best
from launch.papers.infinitehbd.setting import DENSE, HERE, MOE, Steps, Training, mfu_of, plan_of, short, told
from launch.papers.targets import Answer, Row, Target, judged, read_targets

TABLES = ("2", "4", "5")
_TARGETS = HERE / "targets.csv"
_EPS = (2, 4, 8)  # sizes of expert parallelism (6.3)
_TP = 64  # of table 4's plans
_AT_ZERO, _AT_TEN = 0, 10  # % of imbalance, between which expert parallelism must begin to lose


@dataclass(eq=False)
class Paper:
    """What is known of the rows so far; a step or a search is made when the first row asks for it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    steps: Steps = field(default_factory=Steps)
    searched: dict[tuple[int, int], Found] = field(default_factory=dict)

    def rows(self, table: str) -> Iterator[Row]:
        """Of a table, in the order of the paper's data."""
        for target in self.of(table):
            yield judged(target, self.answer(target))

    def of(self, table: str) -> list[Target]:
        """Its rows as printed."""
        return [target for target in self.targets if target.table == table]

    def answer(self, target: Target) -> Answer:
        """What Emu says of a row; why not, where it says nothing."""
        for words, answer in _ANSWERS.items():
            if target.id.startswith(f"hbd-{words}"):
                try:
                    return answer(self, target)
                except InputError as error:
                    return Answer(None, (f"it cannot be estimated: {error}",))
        return Answer(None, ("nothing works it out",))

    def best(self, gpus: int, tp: int = 0) -> Found:
        """The best plan of table 2's bounds; of one TP where it is given."""
        if (gpus, tp) not in self.searched:
            self.searched[gpus, tp] = best(self.steps, DENSE, gpus, tp)
        return self.searched[gpus, tp]

    def sizes(self) -> list[int]:
        """GPUs of table 2's rows."""
        return sorted({target.number("gpus") for target in self.of("2") if "gpus" in target.given})


def _product(paper: Paper, target: Target) -> Answer:
    return Answer(float(target.number("tp") * target.number("pp") * target.number("dp")))


def _improvement(paper: Paper, target: Target) -> Answer:
    ours = float(target.given["mfu"]) / float(target.given["mfu8"])
    return Answer(ours, (f"from the printed {target.given['mfu']} and {target.given['mfu8']}",))


def _percent(paper: Paper, target: Target) -> Answer:
    return Answer(round(100 * float(target.given["mfu"]), target.digits), ("from the printed value of table 5",))


def _plan(of: Training, target: Target) -> Plan:
    return plan_of(of, target.number("tp"), target.number("pp"), target.number("dp"))


def _mfu(of: Training, scale: float, paper: Paper, target: Target) -> Answer:
    step = paper.steps.of(of, _plan(of, target))
    return Answer(scale * mfu_of(step), told(step))


def _mfu_of_tp(paper: Paper, target: Target) -> Answer:
    found = paper.best(target.number("gpus"), target.number("tp"))
    return Answer(mfu_of(found.step), (*told(found.step), found.told))


def _config(paper: Paper, target: Target) -> Answer:
    found = paper.best(target.number("gpus"))
    tp, pp, dp = map(int, target.value.split("/"))
    printed = paper.steps.of(DENSE, plan_of(DENSE, tp, pp, dp))
    ours, theirs = mfu_of(found.step), mfu_of(printed)
    return Answer(
        short(found.plan),
        (*told(found.step), found.told, f"MFU {ours:.4f}, and {theirs:.4f} by the printed plan"),
        max(0.0, ours / theirs - 1),
    )


def _trend(paper: Paper, target: Target) -> Answer:
    tps = [paper.best(gpus).plan.tp for gpus in paper.sizes()]
    told_of = f"the best TP of {', '.join(map(str, paper.sizes()))} GPUs: {', '.join(map(str, tps))}"
    return Answer(f"{tps[0]}->{tps[-1]}", (told_of,), holds=all(a <= b for a, b in pairwise(tps)))


def _gap(paper: Paper, target: Target) -> Answer:
    gains = [mfu_of(paper.best(gpus).step) / mfu_of(paper.best(gpus, 8).step) for gpus in paper.sizes()]
    told_of = f"gains of {', '.join(map(str, paper.sizes()))} GPUs: {', '.join(f'{gain:.3f}' for gain in gains)}"
    return Answer(f"{gains[0]:.2f}->{gains[-1]:.2f}", (told_of,), holds=all(a < b for a, b in pairwise(gains)))


def _of_experts(paper: Paper, gpus: int, tp: int, pp: int, imbalance: int) -> tuple[int, Estimated]:
    """The best EP above 1 and its step, where the fullest expert has 1 / (1 - imbalance / 2) of its even share."""
    found = []
    for ep in _EPS:
        more = {"ep": ep, "etp": max(1, tp // ep), "capacity": 1 / (1 - imbalance / 200)}
        found.append((ep, paper.steps.of(MOE, plan_of(MOE, tp, pp, gpus // (tp * pp), **more))))
    return min(found, key=lambda each: each[1].step_time_s)


_STRAGGLER = (
    "the step waits for the GPU with the fullest expert, so every expert is taken to have as many tokens: 1 / (1 - c / 2) of "
    "its even share"
)
_UNPRINTED = "the plan with EP is not printed: taken are EP of 2, 4 and 8 with TP=64, PP=16, experts by TP / EP ranks each"


def _imbalanced(paper: Paper, target: Target) -> Answer:
    _, step = _of_experts(paper, target.number("gpus"), _TP, 16, target.number("imbalance"))
    return Answer(100 * mfu_of(step), (*told(step), _STRAGGLER, _UNPRINTED))


def _crossing(paper: Paper, target: Target) -> Answer:
    own = next(each for each in paper.of("4") if each.id == "hbd-t4-tp")
    tp = mfu_of(paper.steps.of(MOE, _plan(MOE, own)))
    at = [mfu_of(_of_experts(paper, own.number("gpus"), _TP, 16, c)[1]) for c in (_AT_ZERO, _AT_TEN)]
    words = f"MFU by TP {tp:.4f}, by EP {at[0]:.4f} at {_AT_ZERO} % and {at[1]:.4f} at {_AT_TEN} %"
    holds = at[0] > tp > at[1]
    return Answer("crossover in (0,10)" if holds else "none in (0,10)", (words, _STRAGGLER, _UNPRINTED), holds=holds)


def _best_ep(paper: Paper, target: Target) -> Answer:
    sizes = [each for each in paper.of("5") if "mfu" in each.id]
    won, words = True, []
    for each in sizes:
        gpus, tp, pp = each.number("gpus"), each.number("tp"), each.number("pp")
        ep, step = _of_experts(paper, gpus, tp, pp, 20)
        alone, shared = mfu_of(paper.steps.of(MOE, _plan(MOE, each))), mfu_of(step)
        won &= alone >= shared
        words.append(f"{gpus} GPUs: MFU {alone:.4f} by EP=1, {shared:.4f} by EP={ep}")
    return Answer("EP=1" if won else "EP>1 somewhere", (*words, _STRAGGLER, "TP and PP as printed"), holds=won)


_ANSWERS: dict[str, Callable[[Paper, Target], Answer]] = {
    "t2-prod": _product,
    "t2-imp": _improvement,
    "t2-mfu-": partial(_mfu, DENSE, 1.0),
    "t2-mfu8": _mfu_of_tp,
    "t2-cfg": _config,
    "t2-trend": _trend,
    "t2-gap": _gap,
    "t4-ep": _imbalanced,
    "t4-tp": partial(_mfu, MOE, 100.0),
    "t4-x-t5": _percent,
    "t4-cross": _crossing,
    "t5-prod": _product,
    "t5-mfu": partial(_mfu, MOE, 1.0),
    "t5-ep1": _best_ep,
}
