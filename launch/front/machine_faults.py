"""The question of `emu faults`: what do faults leave of a machine?"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from emu.errors import InputError, must_be
from emu.registry import parse_call
from emu.study.cost import Cost, Price
from emu.study.cost import cost as network_cost
from emu.study.faults.source import (
    DAYS_PER_YEAR,
    Faults,
    LoggedFaults,
    PartLifetimes,
    independent_faults,
    lifetime_faults,
    read_log,
)
from emu.study.faults.waste import CheckpointLoss, Waste, check_group, least_checkpoint_loss, machine_of, waste_of
from emu.units import is_whole, parse_time, seconds
from launch.data.presets import GPUS, SOURCE, find_book, production_log
from launch.front.inputs import Topologies, question, several, topologies_of
from launch.front.network_costs import npu_price
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import with_progress
from launch.show.row_file import row_known
from launch.show.text.machine_table import MachineWaste, faults_report, waste_as_json

MACHINE_NPUS = 2880  # the machine of InfiniteHBD 6.2: a multiple of 36, 64, 72 and 576
_UNITS = {"h": 1 / 24, "d": 1.0, "y": DAYS_PER_YEAR}


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
    if mfu is not None and checkpoint is None:
        raise InputError("faults: --mfu is a factor of goodput, which needs --checkpoint; add --checkpoint, or leave --mfu out")
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

    return loss_at, 1.0 if mfu is None else _share(mfu, "--mfu")


def _days(text: str, name: str) -> float:
    """Return a span of time in days.

    Args:
        text: The span, such as 12h, 60d or 3y.
        name: The option or key that gives it.

    Raises:
        InputError: the text is no such span.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([hdy])", text)
    if found is None or not float(found[1]):
        raise must_be("faults", name, "hours, days or years above 0, such as 12h, 60d or 3y", text)
    return float(found[1]) * _UNITS[found[2]]


def _share(given: float | str, name: str) -> float:
    """Return a share from 0 up to below 1, from a number or a text.

    Args:
        given: The share, such as 1.17% or 0.0117.
        name: The option that gives it.

    Raises:
        InputError: the text is no such share.
    """
    text = given if isinstance(given, str) else f"{given:f}"
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= share < 1:
        raise must_be("faults", name, "a share of 0 or more and below 1, such as 1.17% or 0.0117", text)
    return share


def _failure_domain(text: str, node: int) -> PartLifetimes:
    """Return the failure domain that `--domain` describes, such as `npus=64,mtbf=1y,mttr=4h`.

    Args:
        text: The value of the option.
        node: The number of NPUs of a node.

    Raises:
        InputError: a key is missing or has a value that does not fit.
    """
    given = parse_call(f"domain:{text}", "--domain")[2]
    if sorted(given) != ["mtbf", "mttr", "npus"]:
        raise must_be("faults", "--domain", "npus=64,mtbf=1y,mttr=4h, each once", text)
    if not is_whole(given["npus"]) or not int(given["npus"]) or int(given["npus"]) % node:
        raise must_be("--domain", "npus", f"a multiple of {node}, the NPUs of a node", given["npus"])
    return PartLifetimes(
        _days(given["mtbf"], "--domain mtbf"), _days(given["mttr"], "--domain mttr"), int(given["npus"]) // node
    )


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


def fault_model(arguments: dict[str, Any]) -> Callable[[int], Faults]:
    """Return the function that gives the faults of a machine of so many NPUs, by a log, a rate, or drawn lifetimes.

    Raises:
        InputError: options exclude one another, or an option needs another one.
    """
    node, seed = arguments["npus_per_node"], arguments["seed"]
    mtbf, mttr = (None if arguments[name] is None else _days(arguments[name], f"--{name}") for name in ("mtbf", "mttr"))
    span = _days(arguments["days"], "--days")
    given = [flag for flag in ("log", "rate", "mtbf", "afr") if arguments[flag] is not None]
    if len(given) > 1:
        raise InputError(f"faults: --{' and --'.join(given)} exclude each other; give one of them")
    if arguments["rate"] is not None:
        return _without_times(arguments)
    parts = tuple(_failure_domain(text, node) for text in several(arguments["domain"]))
    if arguments["afr"] is not None and (share := _share(arguments["afr"], "--afr")):
        mtbf = DAYS_PER_YEAR / share
    if (mtbf is None) != (mttr is None):
        raise InputError("faults: --mtbf or --afr, and --mttr go together; give both or none")
    if mtbf is not None and mttr is not None:
        return partial(lifetime_faults, npus_per_node=node, parts=(PartLifetimes(mtbf, mttr), *parts), days=span, seed=seed)
    return _logged_faults(arguments, parts).for_machine


def _without_times(arguments: dict[str, Any]) -> Callable[[int], Faults]:
    """Return the function that gives the faults of a machine by `--rate`.

    Raises:
        InputError: another option needs faults with times.
    """
    if several(arguments["domain"]) or arguments["mttr"] is not None:
        raise InputError("faults: --rate has no times, so that --domain and --mttr do not apply; give --mtbf or --afr instead")
    rate, node, draws = _share(arguments["rate"], "--rate"), arguments["npus_per_node"], arguments["draws"]
    return partial(independent_faults, npus_per_node=node, rate=rate, draws=draws, seed=arguments["seed"])


def _logged_faults(arguments: dict[str, Any], parts: tuple[PartLifetimes, ...]) -> LoggedFaults:
    """Return the source of faults of a log, that of the options or the published one, with domains that are drawn beside it."""
    path, seed = arguments["log"], arguments["seed"]
    log = production_log() if path is None else read_log(Path(path), arguments["servers"] or 0)
    return LoggedFaults(arguments["npus_per_node"], seed, log, str(path or SOURCE), arguments["npus_per_server"], parts)
