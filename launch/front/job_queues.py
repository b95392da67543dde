"""The question of `emu queue`: how long do jobs wait on a machine over weeks, and what does it do with its time?"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from emu.collective.algorithm import AUTO
from emu.errors import must_be
from emu.study.faults.source import Faults
from emu.study.faults.waste import machine_of
from emu.study.queue.arrivals import read_arrivals
from emu.study.queue.cluster_queue import QueueRequest, queue_on
from emu.study.queue.queue_policy import QueuePolicy, find_policy
from emu.study.queue.queue_row import QueueRow
from emu.study.queue.queued_job import DAY_US, US_PER_S, QueuedJob, RunCosts
from emu.units import TICKS_PER_S, parse_time
from launch.data.job_mixes import find_mix
from launch.data.presets import GPUS
from launch.front import inputs
from launch.front.fault_model import fault_model, share_of
from launch.front.inputs import DeviceLike, Topologies, Words, question
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import with_progress
from launch.show.row_file import row_known
from launch.show.text.job_queue_table import job_queue_report

_DEFAULT_JOBS, _POLICY = 3000, "backfill"
_BEGUN = "the machine is empty on day 0, which is also the first day of the log of faults"
_MOST_DAYS = 3650.0


@dataclass(frozen=True, repr=False, eq=False)
class JobQueues(Result[QueueRow], drawn_by="chart.job_queue_chart:job_queue_figure"):
    """A queue of jobs on each machine by each policy: waiting, utilisation, goodput, fragmentation and lost time.

    The picture has the utilisation and the largest job that could start, over time.
    """

    notes: tuple[str, ...]  # what the figures rest on

    def text(self) -> str:
        """Return a table with a line for each machine and policy, the waiting by size, the lost time, and the notes."""
        return job_queue_report(self.rows, self.notes)

    def as_json(self) -> object:
        """Return the rows, each with its moments, and the notes."""
        return {"rows": self.rows, "assumptions": self.notes}

    def records(self) -> Sequence[object]:
        """Return the rows without their moments."""
        return [_record(row) for row in self.rows]

    def page(self) -> Page:
        """Return the report, with a chart."""
        made: Page = lazy("html.job_queue_page:job_queue_page")(self.rows, self.notes)
        return made


def _record(row: QueueRow) -> dict[str, object]:
    """Return a row without the moments at which its machine was looked at."""
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name != "moments"}


@question
def queue(
    *,
    topology: Topologies,
    arrivals: str | Path | None = None,
    mix: str | None = None,
    jobs: int | None = None,
    load: float | str | None = None,
    days: float = 30.0,
    policy: Words = (),
    tp: int = 32,
    npus: int | None = None,
    checkpoint: float | str = "60s",
    checkpoint_every: float | str = "3600s",
    restart: float | str = "300s",
    device: DeviceLike = "h100",
    faultless: bool = False,
    log: str | Path | None = None,
    servers: int | None = None,
    npus_per_server: int = GPUS,
    npus_per_node: int = 4,
    mtbf: str | None = None,
    afr: float | str | None = None,
    mttr: str | None = None,
    domain: str | Sequence[str] = (),
    seed: int = 0,
) -> JobQueues:
    """Simulate a queue of jobs on a machine over weeks: waiting, utilisation, goodput, fragmentation and lost time.

    Args:
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        arrivals: The jobs: a CSV of submit,npus,seconds,priority, with model,plan,global_batch,seq,steps in place of seconds.
        mix: In place of `arrivals`: jobs drawn by published figures, such as `acme`: acme, helios, philly or alibaba.
        jobs: The number of jobs of a mix; None: 3000.
        load: The NPU time that the jobs of a mix ask for, as a share of the machine's, such as `80%`: all run times are
            stretched by one factor; None: as published.
        days: The days of the account. Jobs of a mix are submitted in this time.
        policy: The policy of the queue: fifo, backfill, shortest, preempt or defragment; or several; empty: backfill.
        tp: The NPUs of a group. A job is groups, each placed by the rule of the topology; a smaller job is one group.
        npus: The NPUs of the machine. A smaller topology is repeated; None: those of the largest topology.
        checkpoint: The time of a checkpoint, in seconds or such as `30s`.
        checkpoint_every: The work from a checkpoint to the next, such as `3600s`; 0s: none is saved.
        restart: The time of a start from a checkpoint.
        device: The device, for jobs with a model: a name, a .toml file, or a `Device`.
        faultless: Leave faults out.
        log: A log of faults: a CSV of server,start_day,end_day; None: the published trace of InfiniteHBD.
        servers: The servers of `log`, including those without a fault.
        npus_per_server: The NPUs of a server of the log.
        npus_per_node: The NPUs that fail together.
        mtbf: In place of a log: how long a node works on average (12h, 60d or 3y).
        afr: In place of `mtbf`, the share of the nodes that fail in a year.
        mttr: The repair of a node takes this time on average.
        domain: A part, such as a switch, that takes so many NPUs with it, such as `npus=64,mtbf=1y,mttr=4h`; or several.
        seed: The seed of random numbers.

    Raises:
        InputError: an argument is impossible, a line of a file is, or two arguments exclude each other; the line says which.
    """
    arguments = dict(locals())
    _check(arguments)
    policies = [find_policy(name) for name in dict.fromkeys(inputs.several(policy) or (_POLICY,))]
    built = inputs.topologies_of(topology)
    machines = [machine_of(each, npus or max(other.n_npus for other in built)) for each in built]
    faults = _faults_of(arguments, {machine.npus for machine in machines})
    found, notes = _jobs_of(arguments, min(machine.npus for machine in machines))
    costs = RunCosts(*(_us(arguments[name], name) for name in ("checkpoint", "checkpoint_every", "restart")))
    asked = QueueRequest(found, days, costs, tp, 1 if faultless else npus_per_node, inputs.device_of(device), (AUTO,))
    rows = []
    made = (queue_on(machine, faults.get(machine.npus), policies, asked) for machine in machines)
    for each in with_progress(made, f"running {len(found)} jobs over {days:g} days", len(machines)):
        rows += each
        for row in each:
            row_known(_record(row))
    return JobQueues(tuple(rows), (*notes, *_notes(policies, costs, faults)))


def _check(arguments: dict[str, Any]) -> None:
    """Check the arguments that need no file and no topology.

    Raises:
        InputError: one is impossible, or two exclude each other.
    """
    if (arguments["arrivals"] is None) == (arguments["mix"] is None):
        got = "none" if arguments["mix"] is None else "both"
        raise must_be("queue", "jobs", "given by --arrivals or by --mix, one of them", got)
    for name in ("jobs", "load"):
        if arguments[name] is not None and arguments["mix"] is None:
            raise must_be("queue", f"--{name}", "left out with --arrivals", arguments[name], "a file has its own jobs")
    for name, most in (("days", _MOST_DAYS), ("jobs", 10**7), ("tp", 2**24)):
        least = 0 if name == "days" else 1
        if arguments[name] is not None and not least < arguments[name] + (name != "days") <= most + (name != "days"):
            raise must_be("queue", f"--{name}", f"above 0, and at most {most:g}", arguments[name])


def _us(given: float | str, name: str) -> int:
    """Return a time in whole microseconds."""
    flag = f"--{name.replace('_', '-')}"
    return round(parse_time(given, flag) * US_PER_S / TICKS_PER_S)


def _faults_of(arguments: dict[str, Any], sizes: set[int]) -> dict[int, Faults]:
    """Return the faults of a machine of each number of NPUs, without a machine where faults are left out.

    Raises:
        InputError: options exclude one another, or a log is shorter than the account.
    """
    given = ("log", "servers", "mtbf", "afr", "mttr", "domain")
    if arguments["faultless"]:
        for name in given:
            if arguments[name] not in (None, ()):
                raise must_be("queue", f"--{name}", "left out with --faultless", str(arguments[name]))
        return {}
    days = arguments["days"]
    drawn = {**arguments, "rate": None, "draws": 1, "days": f"{days:f}d"}
    found = {size: fault_model(drawn)(size) for size in sizes}
    for faults in found.values():
        if faults.log is not None and faults.log.days < days:
            raise must_be("queue", "--days", f"at most {faults.log.days:g}, those of the log of faults", f"{days:g}")
    return found


def _jobs_of(arguments: dict[str, Any], npus: int) -> tuple[tuple[QueuedJob, ...], tuple[str, ...]]:
    """Return the jobs, and sentences on where they come from.

    Args:
        arguments: The arguments of the question.
        npus: The NPUs of the smallest machine.

    Raises:
        InputError: a line of the file is impossible, or no mix has that name.
    """
    days = arguments["days"]
    if arguments["mix"] is None:
        return read_arrivals(Path(arguments["arrivals"]), npus), (f"the jobs are those of {arguments['arrivals']}",)
    mix, count = find_mix(arguments["mix"]), arguments["jobs"] or _DEFAULT_JOBS
    told, load_us = f"{count} jobs are drawn for {days:g} days, seed {arguments['seed']}", None
    if arguments["load"] is not None:
        wanted = share_of(arguments["load"], "--load")
        load_us = wanted * npus * days * DAY_US
        told += f"; one factor of all run times makes them ask for {100 * wanted:g} % of the time of {npus} NPUs"
    return mix.draw(count, days, arguments["seed"], load_us), (*mix.notes, told)


def _notes(policies: Sequence[QueuePolicy], costs: RunCosts, faults: dict[int, Faults]) -> tuple[str, ...]:
    """Return the sentences on what the figures rest on, but for the jobs."""
    save_s, every_s, restart_s = (each / US_PER_S for each in (costs.checkpoint_us, costs.every_us, costs.restart_us))
    stopped = (
        f"a fault ends each run on its NPUs; the job waits again in its place of the queue, takes {restart_s:g} s to start, "
        "and goes on from its last checkpoint"
    )
    failing = [stopped, _BEGUN, *dict.fromkeys(note for each in faults.values() for note in each.notes)]
    saved = f"a job saves a checkpoint after each {every_s:g} s of work, which takes {save_s:g} s"
    return (
        *(policy.told for policy in policies),
        saved if every_s else "a job saves no checkpoints while it runs",
        "jobs that share a fabric do not slow one another down",
        *(failing if faults else ["no part fails"]),
    )
