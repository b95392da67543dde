"""The InfiniteHBD paper with all its rows and figures."""

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from launch.papers.infinitehbd import costs, counts, orderings, traffic, waste
from launch.papers.infinitehbd.figures import FIGURES
from launch.papers.infinitehbd.setting import DENSE, InfiniteHBDSteps
from launch.papers.infinitehbd.training import TRAINING, BestPlan, best_plan
from launch.papers.paper import Paper, register

_ALL = (TRAINING, costs.ANSWERS, waste.ANSWERS, orderings.ANSWERS, traffic.ANSWERS, counts.ANSWERS)


@register
@dataclass(eq=False)
class InfiniteHBDPaper(Paper):
    """The InfiniteHBD paper; a step or a search is computed for the first row that needs it."""

    searched: dict[tuple[int, int], BestPlan] = field(default_factory=dict)
    title = "InfiniteHBD"
    source = (
        "Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching "
        "Transceivers (SIGCOMM 2025)."
    )
    example = "--table 2"
    figures = FIGURES
    answers = MappingProxyType({f"hbd-{start}": answer for group in _ALL for start, answer in group.items()})

    @cached_property
    def steps(self) -> InfiniteHBDSteps:
        """The estimates of the paper's steps."""
        return InfiniteHBDSteps(self.cache)

    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of all rows."""
        return self.steps.assumptions()

    def best(self, gpus: int, tp: int = 0) -> BestPlan:
        """Return the best plan within the limits of table 2; with one TP where `tp` is above 0."""
        if (gpus, tp) not in self.searched:
            self.searched[gpus, tp] = best_plan(self.steps, DENSE, gpus, tp)
        return self.searched[gpus, tp]

    def sizes(self) -> list[int]:
        """Return the numbers of GPUs in table 2."""
        return sorted({target.number("gpus") for target in self.of("2") if "gpus" in target.given})
