"""The question of `emu faults`: what do faults leave of a machine?"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.errors import InputError, must_be
from emu.study.cost.network_cost import Cost
from emu.study.cost.network_cost import cost as network_cost
from emu.study.cost.price_book import Price
from emu.study.faults.waste import CheckpointLoss, Waste, check_group, least_checkpoint_loss, machine_of, waste_of
from emu.units import parse_time, seconds
from launch.data.presets import GPUS, find_book
from launch.front.argument_rules import excludes, needs
from launch.front.fault_model import FAULT_EXCLUDES, FAULT_NEEDS, fault_model, share_of
from launch.front.inputs import Topologies, question, several, topologies_of
from launch.front.network_costs import npu_price
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import with_progress
from launch.show.row_file import row_known
from launch.show.text.machine_table import MachineWaste, faults_report, waste_as_json

MACHINE_NPUS = 2880  # the machine of InfiniteHBD 6.2: a multiple of 36, 64, 72 and 576


@dataclass(frozen=True, repr=False, eq=False)
class FaultWaste(Result[MachineWaste], drawn_by="chart.step_chart:waste_figure"):
    """The NPUs of each machine that work but find no group, for each size of groups.

    The picture has the waste over time, and its distribution.
    """

    notes: tuple[str, ...]  # what the figures rest on

    def text(self) -> str:
        """Return a table with a line for each machine and size of groups, then the notes."""
        return faults_report(self.rows, self.notes)

    def as_json(self) -> object:
        """Return the rows and the notes."""
        return {"rows": self.records(), "assumptions": self.notes}

    def records(self) -> Sequence[object]:
        """Return the rows with the shares that the printed table has, too."""
        return [waste_as_json(row) for row in self.rows]

    def page(self) -> Page:
        """Return the report, with charts."""
        made: Page = lazy("html.waste_page:faults_page")(self.rows, self.notes)
        return made


@question
@needs(**FAULT_NEEDS, restart="checkpoint", mfu="checkpoint")
@excludes(**FAULT_EXCLUDES)
def faults(
    *,
    topology: Topologies,
    tp: int | str | Sequence[int] = 32,
    npus: int | None = None,
    log: str | Path | None = None,
    servers: int | None = None,
    npus_per_server: int = GPUS,
    npus_per_node: int = 4,
    rate: float | str | None = None,
    draws: int = 1000,
    mtbf: str | None = None,
    afr: float | str | None = None,
    mttr: str | None = None,
    days: str = "365d",
    domain: str | Sequence[str] = (),
    checkpoint: float | str | None = None,
    restart: float | str = "0s",
    mfu: float | str | None = None,
    job: int | None = None,
    prices: str | None = None,
    npu: str | None = None,
    seed: int = 0,
) -> FaultWaste:
    """Compute what faults leave of a machine: NPUs that work but find no group, the largest job, and goodput.

    Args:
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        tp: The NPUs of a group: one size or several.
        npus: The NPUs of the machine. A smaller topology is repeated; None: at least 2880.
        log: A log of faults: a CSV of server,start_day,end_day; None: the published trace of InfiniteHBD.
        servers: The servers of `log`, including those without a fault.
        npus_per_server: The NPUs of a server of the log.
        npus_per_node: The NPUs that fail together.
        rate: In place of a log: the probability that a node is faulty, as a share or such as `1.17%`.
        draws: The number of random states of the machine, for `rate`.
        mtbf: In place of a log: how long a node works on average (12h, 60d or 3y).
        afr: In place of `mtbf`, the share of the nodes that fail in a year.
        mttr: The repair of a node takes this time on average.
        days: The time for which `mtbf` or `afr` draws faults.
        domain: A part, such as a switch, that takes so many NPUs with it, such as `npus=64,mtbf=1y,mttr=4h`; or several.
        checkpoint: The time of a checkpoint, in seconds or such as `30s`. Goodput is added, with the best interval of
            checkpoints.
        restart: The time of a restart, for `checkpoint`.
        mfu: The MFU of the job while it runs. Goodput is then a share of the machine's peak.
        job: The NPUs of a job. The share of the time in which it must wait for room is added.
        prices: Add the aggregate cost: the network by this price book, and lost NPUs by `npu`.
        npu: The price of an NPU, for `prices`, such as `dollars=30000,watts=700`.
        seed: The seed of random numbers.

    Raises:
        InputError: an argument is impossible, or two exclude each other; the line says which, and how to mend it.
    """
    arguments = dict(locals())
    faults_of, sizes, price = fault_model(arguments), _groups(tp), None if npu is None else npu_price(npu, "faults")
    loss_at, job_mfu = _goodput_terms(checkpoint, restart, mfu)
    if (prices is None) != (npu is None):
        raise InputError("faults: --prices and --npu go together; give both or none")
    book = None if prices is None else find_book(prices)
    built = topologies_of(topology)
    machines = [machine_of(each, npus or max(MACHINE_NPUS, *(other.n_npus for other in built))) for each in built]
    found = {size: faults_of(size) for size in {machine.npus for machine in machines}}
    losses = {size: loss_at(each.per_day) for size, each in found.items()}
    networks = {machine.topology.name: network_cost(machine.topology, book) if book else None for machine in machines}
    cases = [(machine, group) for machine in machines for group in sizes]
    for machine, group in cases:
        check_group(machine, group, job)
    rows = []
    for machine, group in with_progress(cases, f"counting groups, {len(cases)} times", len(cases)):
        row, network = waste_of(machine, group, found[machine.npus].states), networks[machine.topology.name]
        rows.append(
            MachineWaste(
                row,
                losses[machine.npus],
                job_mfu,
                None if job is None else row.waiting(job),
                _aggregate_dollars(network, row, price),
                _aggregate_dollars(network.high if network else None, row, price),
            )
        )
        row_known(waste_as_json(rows[-1]))
    notes = list(dict.fromkeys(note for each in found.values() for note in each.notes))
    if book is not None and price is not None:
        lost = f"the average number of NPUs that are faulty or find no group, at {price.dollars:g} $ each"
        notes.append(f"aggregate cost: the network by the prices of {book.source or book.name}, and {lost}")
    return FaultWaste(tuple(rows), tuple(notes))


def _aggregate_dollars(network: Cost | None, row: Waste, price: Price | None) -> float | None:
    """Return the cost of the network and of lost NPUs in dollars per NPU of the machine; None without prices.

    Args:
        network: The cost of the network; None: there are no prices.
        row: The waste of the machine.
        price: The price of an NPU.
    """
    if network is None or price is None:
        return None
    return network.aggregate_dollars_per_npu(row.availability, price.dollars)


def _goodput_terms(
    checkpoint: float | str | None, restart: float | str, mfu: float | str | None
) -> tuple[Callable[[float | None], CheckpointLoss | None], float]:
    """Return what a job loses to checkpoints and restarts, as a function of the faults of a day, and the MFU of the job.

    The job takes the whole machine: each fault interrupts it. The function takes the best interval of checkpoints; it returns
    None where goodput was not asked for.

    Raises:
        InputError: MFU is given without a checkpoint. The function: the faults have no times, or there is none.
    """
    saving_s = None if checkpoint is None else seconds(parse_time(checkpoint, "--checkpoint"))
    restart_s = seconds(parse_time(restart, "--restart"))

    def loss_at(per_day: float | None) -> CheckpointLoss | None:
        if saving_s is None:
            return None
        if per_day is None:
            raise InputError(
                "faults: --checkpoint needs faults with times, and --rate has none; give --log, or --mtbf and --mttr"
            )
        if not per_day:
            raise InputError(
                "faults: --checkpoint needs a fault, and none begins in the time looked at; give more --days, or another --log"
            )
        return least_checkpoint_loss(saving_s, restart_s, 86400 / per_day)

    return loss_at, 1.0 if mfu is None else share_of(mfu, "--mfu")


def _groups(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of groups that `tp` gives, each once.

    Raises:
        InputError: the text is no list of whole numbers.
    """
    text = given if isinstance(given, str) else ",".join(map(str, several(given)))
    words = text.split(",")
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", word) for word in words):
        raise must_be("faults", "--tp", "whole numbers of 1 or more, such as 32 or 8,16,32", text)
    return tuple(dict.fromkeys(map(int, words)))
