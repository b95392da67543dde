"""The speed of jobs that train a model, by their places: each distinct placement is estimated once.

Placements that a symmetry of the topology maps onto one another are one; so a system that looks alike from everywhere needs few
estimates.
"""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError, at_place, must_be
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.site import canonical_npus
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.workload.queued_job import US_PER_S, JobModel, QueuedJob
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.placement import without
from emu.trace.device.device import Device
from emu.units import TICKS_PER_S


class JobSpeeds:
    """The times of steps on a machine, by the model and the places of a job.

    Args:
        machine: The machine, empty and whole.
        group: The NPUs of a group.
        device: The device of all NPUs.
        algorithms: The words that choose algorithms.
    """

    def __init__(self, machine: GangMachine, group: int, device: Device, algorithms: tuple[str, ...]) -> None:
        self._machine, self._group, self._device, self._algorithms = machine, group, device, algorithms
        self._steps_fs: dict[tuple[JobModel, bytes], int] = {}
        self._best: dict[tuple[JobModel, int], int] = {}

    def timed(self, job: QueuedJob) -> QueuedJob:
        """Return a job with the time of its work on an empty machine; unchanged if its work is seconds.

        Raises:
            InputError: The plan does not fit the job or the model, or no copy of the topology has room for it.
        """
        if job.trained is None:
            return job
        try:
            step_fs = self._best_fs(job.trained, job.npus)
        except InputError as error:
            raise at_place(job.where, error) if job.where not in str(error) else error from None
        work_us = max(1, round(Fraction(job.trained.steps * step_fs * US_PER_S, TICKS_PER_S)))
        return replace(job, work_us=work_us)

    def slowness(self, job: QueuedJob, places: I64) -> Fraction:
        """Return the time of a step on some places over that on an empty machine; 1 if the work of the job is seconds."""
        if job.trained is None:
            return Fraction(1)
        return Fraction(self._step_fs(job.trained, places[: job.npus]), self._best_fs(job.trained, job.npus))

    def _best_fs(self, trained: JobModel, npus: int) -> int:
        """Return the ticks of a step on the places that a job gets on an empty machine."""
        if (trained, npus) not in self._best:
            topology, free = self._machine.machine.topology, self._machine.whole
            if npus > topology.n_npus:
                what = f"at most {topology.n_npus} with a model, those of a copy of {topology.name}"
                raise must_be("", "npus", what, npus, "nothing is said of what joins copies")
            places = self._machine.place(npus, min(self._group, npus), free, in_one_copy=True)
            if not len(places):
                raise must_be("", "npus", f"such that a job finds room on {topology.name}", npus)
            self._best[trained, npus] = self._step_fs(trained, places[:npus])
        return self._best[trained, npus]

    def _step_fs(self, trained: JobModel, places: I64) -> int:
        """Return the ticks of a step on some places, all of one copy of the topology."""
        topology = self._machine.machine.topology
        places = canonical_npus(topology, column(places % topology.n_npus, np.int64))
        key = trained, places.tobytes()
        if key not in self._steps_fs:
            plan = parse_plan(trained.plan, global_batch=trained.global_batch, seq=trained.seq)
            if plan.world != len(places):
                raise must_be("", "npus", f"{plan.world}, those of the plan {trained.plan}", len(places))
            request = EstimateRequest(trained.model, plan, algorithms=self._algorithms)
            placed = replace(topology, placer=partial(without, column(places, np.int64)))
            self._steps_fs[key] = round(estimate(request, placed, self._device).step_time_s * TICKS_PER_S)
        return self._steps_fs[key]
