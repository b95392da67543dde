"""Published training runs compared with `emu estimate`, with constants fitted with and without the run's model."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np

from emu.errors import InputError
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.study.training.composed.software_costs import costed_device
from emu.study.training.device_fit import Constant, DeviceFit, Ladder, StepNearDevice, with_constants
from emu.study.training.estimate import EstimateRequest, PreparedEstimate, prepare
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.data.devices import DEVICES
from launch.data.fitted import DATA, Blind, Fitted
from launch.papers.measured.rows import Run
from launch.papers.measured.settings import model_of, request_of, setting_of, topology_of

TRAINING = DATA / "training.csv"
PREDICTED = DATA / "predicted.csv"  # runs that are in no fit
COMMAND = "emu repro measured --fit FILE.json"
# Two constants of a device are fitted on runs. None is of a model or a row, and all others are of measured kernels. One is the
# clock. It is expected below that at which a kernel is measured by itself, as a step loads the whole server. The other is the
# spread of speeds where the runs have ladders, or else the share of the memory's bandwidth that kernels reach.
CLOCK = Constant("clock", 0.85, 0.1, 0.3, 1.3)
BANDWIDTH = Constant("hbm_efficiency", 0.8, 0.1, 0.3, 1.0)
_RUNGS = 3  # of a ladder, at least
_DRAWS, _SEED = 10, 29  # halves of the models that the constants are fitted on, for the other halves


@dataclass(frozen=True, eq=False, slots=True)
class RunRequest:
    """A published run, with the estimate request that corresponds to it."""

    run: Run
    architecture: str
    software: str
    topology: str
    request: EstimateRequest

    @property
    def model(self) -> str:
        """The name of the model of the measured run; a fit leaves out all runs of one model together."""
        return self.run.model or self.run.id

    @property
    def copy_key(self) -> Hashable:
        """A key of the model, the software, and the plan of one data-parallel copy.

        Runs with equal keys differ in their numbers of GPUs alone; together they are a *ladder*.
        """
        run, plan, stack = self.run, self.request.plan, self.request.stack
        sizes = plan.tp, plan.cp, plan.pp, plan.vp, plan.ep, plan.microbatch, plan.seq, plan.global_batch // plan.dp
        return self.model, run.layers, run.precision, repr(stack), sizes

    def ready(self) -> "PreparedRun":
        """Return the run with its step prepared, so that only the times of computations are missing.

        The memory of the device is not checked, because the run has taken place.

        Raises:
            InputError: See `prepare`.
        """
        return PreparedRun(
            self, prepare(self.request, build_topology(self.topology), _unlimited(self.run.device), ALWAYS_COMPOSED)
        )


@dataclass(frozen=True, eq=False, slots=True)
class PreparedRun:
    """A published run whose step is prepared for any device: only the times of computations are missing."""

    run_request: RunRequest
    prepared: PreparedEstimate

    def near(self, device: Device) -> StepNearDevice:
        """Return the run's step time as a function of the device, valid near the given device."""
        under = partial(costed_device, self.run_request.request.stack)
        return StepNearDevice.of(self.prepared.timed(under(device)), device, under)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A published run with its measured step time and Emu's, in seconds; `ratio` is Emu's time over the measured one.

    Fields of `in_sample` are by constants that were fitted to this run, too.
    """

    id: str
    model: str
    architecture: str
    kind: str
    device: str
    measured_s: float
    ours_s: float  # with constants that have not seen the model
    ratio: float  # ours to measured
    fitted_on: tuple[str, ...]  # models
    in_sample_s: float  # with the constants of the device
    in_sample_ratio: float
    software: str
    stack: str
    plan: str
    topology: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The errors |ratio - 1| of all runs of one device and kind."""

    device: str
    kind: str
    rows: int
    mean_error: float
    worst_error: float
    worst: str  # whose
    in_sample_mean_error: float
    in_sample_worst_error: float
    in_sample_worst: str


def ask(run: Run, where: str) -> RunRequest:
    """Return the request for an estimate of a measured run.

    Raises:
        InputError: No estimate can be made of the run; the message names its line.
    """
    (model, architecture), topology = model_of(run, where), topology_of(run, where)
    request = request_of(run, model, where)
    try:
        check_fits_model(request.plan, model, request.stack)
        check_runs(request.plan, model, request.stack)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return RunRequest(run, architecture, setting_of(run, where), topology, request)


def _unlimited(device: str) -> Device:
    return replace(DEVICES[device], memory_bytes=0)


def row_of(of: PreparedRun, fitted: Mapping[str, Fitted]) -> RunComparison:
    """Return the comparison of a run: its measured time, and estimates with seen and unseen constants."""
    request, run = of.run_request, of.run_request.run
    device, known = _unlimited(run.device), fitted.get(run.device, Fitted((), {}, {}))
    blind, fitted_on = known.for_model(request.model)
    in_sample = of.prepared.estimate(with_constants(device, known.constants))[0]
    ours = in_sample if blind is known.constants else of.prepared.estimate(with_constants(device, blind))[0]
    return RunComparison(
        id=run.id,
        model=request.model,
        architecture=request.architecture,
        kind=run.kind,
        device=run.device,
        measured_s=run.step_s,
        ours_s=ours.step_time_s,
        ratio=ours.step_time_s / run.step_s,
        fitted_on=fitted_on,
        in_sample_s=in_sample.step_time_s,
        in_sample_ratio=in_sample.step_time_s / run.step_s,
        software=request.software,
        stack=in_sample.stack,
        plan=in_sample.plan,
        topology=request.topology,
    )


def summaries(rows: Sequence[RunComparison]) -> Iterator[RunSummary]:
    """Return a summary for each device and kind."""
    for device, kind in dict.fromkeys((row.device, row.kind) for row in rows):
        own = [row for row in rows if (row.device, row.kind) == (device, kind)]
        out = max(own, key=lambda row: abs(row.ratio - 1))
        inside = max(own, key=lambda row: abs(row.in_sample_ratio - 1))
        yield RunSummary(
            device=device,
            kind=kind,
            rows=len(own),
            mean_error=fmean(abs(row.ratio - 1) for row in own),
            worst_error=abs(out.ratio - 1),
            worst=out.id,
            in_sample_mean_error=fmean(abs(row.in_sample_ratio - 1) for row in own),
            in_sample_worst_error=abs(inside.in_sample_ratio - 1),
            in_sample_worst=inside.id,
        )


def fit(rows: Sequence[PreparedRun], others: Sequence[PreparedRun] = ()) -> dict[str, Fitted]:
    """Return the fitted constants of each device of the given runs.

    Args:
        rows: The runs on which constants are fitted.
        others: Further runs, of which only ladders count, by how their step times grow.
    """
    found = {}
    for device in dict.fromkeys(of.run_request.run.device for of in rows):
        own = [of for of in rows if of.run_request.run.device == device]
        models = [of.run_request.model for of in own]
        of = fit_of(device, own, others)
        without = {str(model): constants for model, constants in of.without().items()}
        blind = (
            dict(_blind(of.blind(_DRAWS, _SEED), [each.run_request.run.kind for each in own])) if len(set(models)) > 1 else {}
        )
        found[device] = Fitted(tuple(dict.fromkeys(models)), of.found[0], without, blind)
    return found


def fit_of(device: str, rows: Sequence[PreparedRun], others: Sequence[PreparedRun] = ()) -> DeviceFit:
    """Return the fit of a device's constants to its rows, and to the ladders among all rows."""
    own, measured = _unlimited(device), np.array([of.run_request.run.step_s for of in rows])
    ladders = [*_ladders([of for of in (*rows, *others) if of.run_request.run.device == device], own)]
    constants = (CLOCK,) if ladders else (CLOCK, BANDWIDTH)
    return DeviceFit(own, constants, [of.near for of in rows], measured, [of.run_request.model for of in rows], ladders)


def _ladders(rows: Sequence[PreparedRun], device: Device) -> Iterator[Ladder]:
    """Yield the ladders among runs: runs that differ in the number of NPUs alone."""
    by_plan: dict[Hashable, list[PreparedRun]] = {}
    for of in rows:
        by_plan.setdefault(of.run_request.copy_key, []).append(of)
    for own in by_plan.values():
        if len({of.run_request.run.gpus for of in own}) >= _RUNGS:
            yield Ladder(
                own[0].run_request.model, [of.near(device) for of in own], np.array([of.run_request.run.step_s for of in own])
            )


def _blind(draws: Sequence[Sequence[tuple[int, float]]], kinds: Sequence[str]) -> Iterator[tuple[str, Blind]]:
    """Yield, for each kind of run, the errors on models that a fit on the other half of the models has not seen."""
    for kind in dict.fromkeys(kinds):
        errors = [abs(ratio - 1) for draw in draws for row, ratio in draw if kinds[row] == kind]
        if errors:
            yield kind, Blind(len(draws), *(float(f"{each:.4g}") for each in (fmean(errors), max(errors))))


def with_unseen(fitted: Mapping[str, Fitted], rows: Sequence[RunComparison]) -> dict[str, Fitted]:
    """Return fitted constants with the errors of the runs whose models they were not fitted on.

    These errors say how far off an estimate may be.
    """
    return {device: replace(of, unseen=_unseen([row for row in rows if row.device == device])) for device, of in fitted.items()}


def _unseen(rows: Sequence[RunComparison]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return, by kind and model, the ratios of our step times to the measured ones.

    Only runs count whose model the constants have not seen.
    """
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in rows:
        if row.model not in row.fitted_on:
            by = found.setdefault(row.kind, {})
            by[row.model] = (*by.get(row.model, ()), float(f"{row.ratio:.4g}"))
    return found
