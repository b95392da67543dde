"""The question of `emu queue`: how long do jobs wait on a machine over weeks, and what does it do with its time?"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

from emu.collective.chooser_names import AUTO
from emu.study.faults.source import Faults
from emu.study.faults.waste import machine_of
from emu.study.job_pool import LocalPool
from emu.study.queue.cluster_queue import QueueCase, QueueRequest, queues
from emu.study.queue.queue_policy import QueuePolicy, find_policy
from emu.study.queue.queue_row import QueueRow, QueueSpread, queue_spread
from emu.study.queue.workload.queued_job import US_PER_S, RunCosts
from launch.clusters import job_pool
from launch.data.presets import GPUS
from launch.front import inputs
from launch.front.argument_rules import excludes, needs
from launch.front.inputs import DeviceLike, Topologies, Words, question
from launch.front.queue_input import check_arguments, faults_of, jobs_of, run_costs, seeds_of
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import with_progress
from launch.show.row_file import row_known
from launch.show.text.job_queue_table import job_queue_report
from launch.show.text.queue_spread_table import queue_spread_report

_POLICY = "backfill"
_PROCESSES = 4  # of this machine
_BEGUN = "the machine is empty on day 0, which is also the first day of the log of faults"


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


@dataclass(frozen=True, repr=False, eq=False)
class QueueSpreads(Result[QueueSpread], drawn_by="chart.queue_spread_chart:queue_spread_figure"):
    """A queue of jobs on each machine by each policy over several seeds: means with confidence intervals.

    The picture has goodput, waiting and the largest job that could start.
    """

    notes: tuple[str, ...]  # what the figures rest on

    def text(self) -> str:
        """Return a table with a line for each machine and policy, the lost time, and the notes."""
        return queue_spread_report(self.rows, self.notes)

    def as_json(self) -> object:
        """Return the rows, each with those of its seeds, and the notes."""
        return {"rows": self.rows, "assumptions": self.notes}

    def records(self) -> Sequence[object]:
        """Return the rows without those of their seeds."""
        return [_spread_record(row) for row in self.rows]

    def page(self) -> Page:
        """Return the report, with a chart."""
        made: Page = lazy("html.queue_spread_page:queue_spread_page")(self.rows, self.notes)
        return made


def _spread_record(row: QueueSpread) -> dict[str, object]:
    """Return a row without those of its seeds."""
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name != "by_seed"}


def _record(row: QueueRow) -> dict[str, object]:
    """Return a row without the moments at which its machine was looked at."""
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name != "moments"}


@question
@needs(servers="log", jobs="mix", load="mix", device="arrivals")
@excludes(
    npus_per_server="mtbf|afr|faultless",
    **dict.fromkeys(("npus_per_node", "log", "mtbf", "afr", "mttr", "domain"), "faultless"),
)
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
    seeds: int = 1,
    workers: str = "local",
    ray_address: str | None = None,
) -> JobQueues | QueueSpreads:
    """Simulate a queue of jobs on a machine over weeks: waiting, utilisation, goodput, fragmentation and lost time.

    Args:
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        arrivals: The jobs: a CSV of submit,npus,seconds,priority, with model,plan,global_batch,seq,steps in place of seconds.
        mix: In place of `arrivals`: jobs drawn by published figures, such as `acme`: acme, helios, philly or alibaba.
        jobs: The number of jobs of a mix; None: 3000.
        load: The NPU time that the jobs of a mix ask for, as a share of the machine's, such as `80%`: all run times are
            stretched by one factor; above 100 % the queue grows; None: as published.
        days: The days of the account. Jobs of a mix are submitted in this time.
        policy: The policy of the queue: fifo, backfill, shortest, preempt or defragment; or several; empty: backfill.
        tp: The NPUs of a group. A job is groups, each placed by the rule of the topology; a smaller job is one group.
        npus: The NPUs of the machine. A smaller topology is repeated; None: those of the largest topology.
        checkpoint: The time of a checkpoint, in seconds or such as `30s`.
        checkpoint_every: The work from a checkpoint to the next, such as `4h`; 0s: none is saved.
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
        seeds: The number of seeds, from `seed` on. Two or more give means with confidence intervals.
        workers: The processes that simulate: of this machine (`local`), or of a Ray (`ray`).
        ray_address: The address of a running Ray, for `workers`; None: start one on this machine.

    Raises:
        InputError: an argument is impossible, a line of a file is, or two arguments exclude each other; the line says which.
    """
    arguments = dict(locals())
    check_arguments(arguments)
    policies = [find_policy(name) for name in dict.fromkeys(inputs.several(policy) or (_POLICY,))]
    built = inputs.topologies_of(topology)
    machines = [machine_of(each, npus or max(other.n_npus for other in built)) for each in built]
    faults = [faults_of({**arguments, "seed": each}, {machine.npus for machine in machines}) for each in seeds_of(arguments)]
    drawn, notes = jobs_of(arguments, min(machine.npus for machine in machines))
    costs, node = run_costs(arguments), 1 if faultless else npus_per_node
    asked = QueueRequest(
        tuple(machines), tuple(policies), drawn, days, costs, tp, node, inputs.device_of(device), (AUTO,), seeds == 1
    )
    cases = [
        QueueCase(number, each, None if faultless else of[machine.npus].log)
        for number, machine in enumerate(machines)
        for each, of in zip(seeds_of(arguments), faults, strict=True)
    ]
    pool = job_pool("emu queue", workers, ray_address, LocalPool(min(_PROCESSES, os.cpu_count() or 1)))
    label = f"running {len(drawn(seed))} jobs over {days:g} days"
    told = (*notes, *_notes(policies, costs, faults[0]), *_seed_notes(arguments))
    made = with_progress(queues(asked, cases, pool), label, len(cases))
    return JobQueues(tuple(_known(made)), told) if seeds == 1 else QueueSpreads(tuple(_spreads(made, seeds)), told)


def _known(made: Iterable[list[QueueRow]]) -> Iterator[QueueRow]:
    """Yield the rows of all machines; each is reported once it is known."""
    for row in chain.from_iterable(made):
        row_known(_record(row))
        yield row


def _spreads(made: Iterable[list[QueueRow]], seeds: int) -> Iterator[QueueSpread]:
    """Yield the rows over seeds, given the rows by policy of each seed of each machine; each is reported once it is known."""
    by_seed = iter(made)
    while of_machine := list(islice(by_seed, seeds)):
        for rows in zip(*of_machine, strict=True):
            found = queue_spread(rows)
            row_known(_spread_record(found))
            yield found


def _seed_notes(arguments: dict[str, Any]) -> tuple[str, ...]:
    """Return the sentences on several seeds, if there are several."""
    seeds = seeds_of(arguments)
    if len(seeds) == 1:
        return ()
    return (
        f"each of the seeds {seeds[0]} to {seeds[-1]} draws jobs and faults of its own, as is said of seed {seeds[0]}",
        "all machines and policies get the same jobs and faults of each seed, so that a difference between two of them is "
        "surer than their intervals",
    )


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
