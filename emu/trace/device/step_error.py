"""The expected error of estimated steps on a device, from published runs that were not used in a fit.

An error of a run is |ours / measured - 1|. Runs of one model have like errors, so that a model counts once, by its worst run.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

LEAST_FLOPS = 6e9  # for each token, of a model of 1 B parameters; the smallest of the runs has 1.7 B
_OF_TEN = 9  # of ten other models, those whose runs the error shall hold for


class RunKind(NamedTuple):
    """The kind of a run (with experts or not, in FP8 or not); each kind has its own expected error."""

    experts: bool
    fp8: bool  # whether products are in FP8

    @property
    def word(self) -> str:
        """The name of the kind in files and tables: `dense` or `experts`, with ` in FP8` if the products run in FP8."""
        return ("experts" if self.experts else "dense") + " in FP8" * self.fp8


KINDS: Mapping[str, RunKind] = {
    kind.word: kind for kind in (RunKind(experts, fp8) for experts in (False, True) for fp8 in (False, True))
}


class StepError(NamedTuple):
    """The error of estimated steps of one kind: the share by which Emu and the measured runs of that kind differ at most.

    `covered` counts the models whose runs are all within the share.
    """

    kind: RunKind
    share: float  # by which ours and measured differ at most
    device: str  # on which the runs ran
    runs: int
    models: int
    covered: int  # models whose runs are all within the share
    beyond: str = ""  # why it need not hold on a device that takes it over from `device`; "": it holds there, too

    @property
    def text(self) -> str:
        """A phrase that names the published runs from which the error of an estimate is known.

        It has the number of runs and of models, and the device.
        """
        experts, fp8 = " with experts" * self.kind.experts, " in FP8" * self.kind.fp8
        of = f"{self.runs} published runs of {self.models} {'' if experts else 'dense '}model{'s' * (self.models > 1)}{experts}"
        which = "the worst error of" if self.covered == self.models else f"{self.covered} models are within, of"
        return f"{which} {of}{fp8} on {self.device}, each timed by constants that were fitted without its model"

    def told(self, flops_per_token: float | None) -> dict[str, Any]:
        """Return the fields of a step that say how far it may be off: the share and its runs, or why they need not hold.

        Args:
            flops_per_token: As in `beyond_runs`.
        """
        beyond = self.beyond_runs(flops_per_token)
        return {"beyond_runs": beyond} if beyond else {"either_way": self.share, "either_way_by": self.text}

    def beyond_runs(self, flops_per_token: float | None) -> str | None:
        """Return why the error need not hold for a step; None: the step is one of the kind of the runs.

        Args:
            flops_per_token: The FLOPs of the model for each token, forward and backward; None: it is a script's, and unknown.
        """
        if self.beyond:
            return self.beyond
        if flops_per_token is None:
            return "no published run is of a script"
        return None if flops_per_token >= LEAST_FLOPS else "no published run is of so small a model"


def step_error(kind: RunKind, device: str, ratios: Mapping[str, Sequence[float]]) -> StepError:
    """Return the error within which nine of ten estimated steps of a kind are expected to be, from measured runs of that kind.

    The k-th smallest of m models' worst errors is taken, with k = ceil(0.9 (m + 1)); with fewer than nine models it is the
    worst. If models are exchangeable, all runs of one more model are within it with a probability of min(k, m) / (m + 1) or
    more. Source: conformal prediction (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Lei et al.,
    Distribution-Free Predictive Inference for Regression, JASA 2018) with a model as the unit, as in Dunn, Wasserman and
    Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 2023.

    Args:
        kind: The kind of the runs.
        device: The device that they ran on.
        ratios: By model, our time of each run to the measured one.
    """
    worst = sorted(max(abs(ratio - 1) for ratio in own) for own in ratios.values())
    covered = min(len(worst), ceil(_OF_TEN * (len(worst) + 1) / 10))
    return StepError(kind, worst[covered - 1], device, sum(map(len, ratios.values())), len(worst), covered)
