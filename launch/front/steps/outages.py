"""The question of `emu outage`: what is a job's throughput over time while parts of the machine fail and come back?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from emu.errors import must_be
from emu.model.plan.plan_text import parse_plan
from emu.registry import parse_call
from emu.study.live.faulty_job import times_of_estimate
from emu.study.live.throughput import JobThroughput, Recourse, TimedJob, throughput_over_time
from emu.study.training.axes import slots_of
from emu.study.training.estimate import EstimateRequest
from emu.topology.fault_injection.fault_script import at_times, faults_of, read_faults
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import is_whole, parse_time, seconds
from launch.front import inputs
from launch.front.inputs import DeviceLike, ModelLike, Topologies, Words, question
from launch.front.result import Result
from launch.show.progress import finished_items, with_progress
from launch.show.row_file import row_known
from launch.show.text.outage_table import outage_report


@dataclass(frozen=True, repr=False, eq=False)
class JobOutages(Result[JobThroughput], drawn_by="chart.outage_chart:outage_figure"):
    """The throughput of a job over time on each topology, while parts fail and come back.

    The picture has a line for each topology, with a mark at each event.
    """

    @property
    def failure(self) -> str | None:
        """The job that ended and did not start again; None: none did."""
        return next((f"{job.topology}: the job stopped {job.stopped}" for job in self.rows if job.stopped is not None), None)

    def text(self) -> str:
        """Return the report of each job."""
        return "\n\n".join(map(outage_report, self.rows))

    def records(self) -> Sequence[object]:
        """Return the spans of one throughput, each with its topology."""
        return [row for job in self.rows for row in _span_rows(job)]


def _span_rows(job: JobThroughput) -> Iterator[dict[str, object]]:
    """Yield the spans of a job as rows of a table."""
    for span in job.spans:
        told = {name: getattr(span, name) for name in ("begin_s", "end_s", "state", "share", "tokens_per_s")}
        yield {"topology": job.topology, **told, "events": "; ".join(span.events), "told": span.told}


@question
def outage(
    *,
    model: ModelLike,
    plan: str,
    topology: Topologies,
    global_batch: int,
    seq: int,
    fault: Words,
    until: float | str,
    detect: float | str = "0s",
    resend: str = "",
    checkpoint: float | str = "0s",
    checkpoint_every: float | str | None = None,
    restart: float | str | None = None,
    device: DeviceLike = "h100",
    algorithm: Words = (),
    axes: Words = "",
    scale_dp: bool = False,
    stack: str = "",
) -> JobOutages:
    """Compute a job's throughput over time while parts of the machine fail, flap and come back, and its goodput.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        plan: The sizes of the axes of parallelism and the settings of the step, such as `tp=8,sp,dp=8,microbatch=1`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        global_batch: Sequences in a step, over all ranks.
        seq: Tokens in a sequence.
        fault: What fails when, and when it is back, as `link 3-7 from 10s to 70s` or `nic 4 flaps 1s every 9s from 10s to 70s`,
            or files of such texts; or several.
        until: The time at which the account ends, in seconds or such as `120s`.
        detect: The time from a change of the machine until the system begins to react, besides the system's own time.
        resend: How often a message that finds no way is sent again before the job ends, also if the system would react later,
            such as `every=17.2s,times=7`; empty: the job ends when a message finds no way.
        checkpoint: The time of a checkpoint, in which the job stands still; more than 0 only with `checkpoint_every`.
        checkpoint_every: The time from a checkpoint to the next, in seconds or such as `1800s`; None: there is none.
        restart: The time until a job that has ended runs again from its last checkpoint; None: it does not.
        device: The device: a name, a .toml file, or a `Device`.
        algorithm: Words that choose algorithms, such as `all_reduce=ring` or `dp.all_gather=ring`; empty: `auto`.
        axes: The placement: axes, with neighbouring NPUs on the first, such as `tp,dp,pp`; empty: tp,cp,dp,pp.
        scale_dp: Where a topology has fewer NPUs than the plan, reduce dp and the global batch with it.
        stack: The software and its settings, such as `software=megatron`.

    Raises:
        InputError: an argument is impossible, or the plan does not fit; the line says which, and how to mend it.
    """
    the_plan, software = parse_plan(plan, global_batch=global_batch, seq=seq), inputs.stack_of(stack)
    algorithms, order = inputs.algorithm_words(algorithm, software), inputs.placement_order(axes)
    request = EstimateRequest(inputs.model_word(model), the_plan, software, algorithms, order, scale_dp)
    every_s = inf if checkpoint_every is None else _seconds(checkpoint_every, "--checkpoint-every")
    again_s = None if restart is None else _seconds(restart, "--restart")
    tries = _resend(resend)
    recourse = Recourse(_seconds(detect, "--detect"), *tries, every_s, _seconds(checkpoint, "--checkpoint"), again_s)
    built, found = inputs.topologies_of(topology), inputs.device_of(device, software.precision.activation)
    account = _Account(request, found, _timed_faults(inputs.several(fault)), _seconds(until, "--until"), recourse)
    jobs = (account.on(each) for each in built)
    done = finished_items(jobs, lambda finished: JobOutages(finished).text(), len(built))
    return JobOutages(tuple(with_progress(done, f"estimating steps of {request.model}", len(built))))


@dataclass(frozen=True, slots=True)
class _Account:
    """Compute the throughput of a job on one topology after another."""

    request: EstimateRequest
    device: Device
    faults: tuple[str, ...]
    until_s: float
    recourse: Recourse

    def on(self, topology: Topology) -> JobThroughput:
        """Return the throughput of the job over time on a topology."""
        request = self.request.scaled_to(topology)
        plan = request.plan
        faults = faults_of(self.faults, topology, plan.world, 1, clock=True)
        timed = times_of_estimate(request, self.device)
        slots = slots_of(plan, request.axes)
        job = TimedJob(plan.world, plan.global_batch * plan.seq, timed, self.device.name, slots)
        found = throughput_over_time(topology, faults, self.until_s, self.recourse, job)
        for row in _span_rows(found):
            row_known(row)
        return found


def _timed_faults(words: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of faults, each of which says at what time it begins.

    Args:
        words: The texts, or files that have them.

    Raises:
        InputError: There is none, or they are at steps rather than at times.
    """
    texts = read_faults(words)
    if not texts or not at_times(texts):
        mend = "`emu estimate --fault` takes steps"
        raise must_be("outage", "--fault", "at times, such as `link 3-7 from 10s to 70s`", ", ".join(texts) or "none", mend)
    return texts


def _seconds(given: float | str, name: str) -> float:
    """Return a time in seconds."""
    return seconds(parse_time(given, name))


def _resend(text: str) -> tuple[float, int]:
    """Return the seconds from a try to the next and the number of tries; 0 and 0 where the text is empty.

    Raises:
        InputError: the text has other keys or no such numbers.
    """
    if not text:
        return 0.0, 0
    given = parse_call(f"resend:{text}", "--resend")[2]
    if sorted(given) != ["every", "times"]:
        raise must_be("outage", "--resend", "every=17.2s,times=7, each once", text)
    every_s, times = _seconds(given["every"], "--resend every"), given["times"]
    if not every_s:
        raise must_be("outage", "every of --resend", "a time above 0", given["every"], "leave --resend out for no try")
    if not is_whole(times) or not int(times):
        raise must_be("outage", "times of --resend", "a whole number of 1 or more", times, "leave --resend out for no try")
    return every_s, int(times)
