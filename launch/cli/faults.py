"""The command `emu faults`: the NPUs of a machine that groups of tensor parallelism lose to faults."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError, must_be
from emu.registry import parse_call
from emu.study.cost.cost import Cost, cost
from emu.study.faults.source import DAYS_PER_YEAR, Faults, LoggedFaults, PartLifetimes, drawn_faults, probable_faults, read_log
from emu.study.faults.waste import Restarts, Waste, check_group, machine_of, optimal_restarts, waste
from emu.topology.catalogue import build_topology
from emu.units import seconds
from launch.cli.cost import NPU_PRICE
from launch.cli.options import common
from launch.cli.options.files import OutputFile, write_html, write_png
from launch.cli.options.view_options import html_option
from launch.data.fault_logs import GPUS, SOURCE, production_log
from launch.data.prices import find_book
from launch.show.progress import with_progress
from launch.show.text.waste_table import MachineWaste, faults_report, waste_as_json

_NPUS = 2880  # the machine of InfiniteHBD 6.2: a multiple of 36, 64, 72 and 576
_UNITS = {"h": 1 / 24, "d": 1.0, "y": DAYS_PER_YEAR}
_AT_LEAST = click.IntRange(min=1)


def _days(text: str, name: str) -> float:
    """Return a span of time in days.

    Args:
        text: The span, such as 12h, 60d or 3y.
        name: The option or key that gives it.

    Raises:
        InputError: the text is no such span.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdy])", text)
    if found is None or not float(found[1]):
        raise must_be("faults", name, "hours, days or years above 0, such as 12h, 60d or 3y", text)
    return float(found[1]) * _UNITS[found[2]]


def _share(text: str, name: str) -> float:
    """Return a share of 0 or more and below 1.

    Args:
        text: The share, such as 1.17% or 0.0117.
        name: The option that gives it.

    Raises:
        InputError: the text is no such share.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= share < 1:
        raise must_be("faults", name, "a share of 0 or more and below 1, such as 1.17% or 0.0117", text)
    return share


_SPAN, _SHARE = common.TextType("SPAN", _days), common.TextType("SHARE", _share)


def _domain(text: str, node: int) -> PartLifetimes:
    """Return the part that `--domain` gives, such as `npus=64,mtbf=1y,mttr=4h`.

    Args:
        text: The value of the option.
        node: The number of NPUs of a node.

    Raises:
        InputError: a key is missing or has a value that does not fit.
    """
    given = parse_call(f"domain:{text}", "--domain")[2]
    if sorted(given) != ["mtbf", "mttr", "npus"]:
        raise must_be("faults", "--domain", "npus=64,mtbf=1y,mttr=4h, each once", text)
    if not given["npus"].isdecimal() or not int(given["npus"]) or int(given["npus"]) % node:
        raise must_be("--domain", "npus", f"a multiple of {node}, the NPUs of a node", given["npus"])
    return PartLifetimes(
        _days(given["mtbf"], "--domain mtbf"), _days(given["mttr"], "--domain mttr"), int(given["npus"]) // node
    )


def _groups(text: str) -> tuple[int, ...]:
    """Return the sizes of groups that `--tp` gives, each once.

    Raises:
        InputError: the text is no list of whole numbers.
    """
    words = text.split(",")
    if not all(re.fullmatch(r"[1-9]\d{0,8}", word) for word in words):
        raise must_be("faults", "--tp", "whole numbers of 1 or more, such as 32 or 8,16,32", text)
    return tuple(dict.fromkeys(map(int, words)))


@click.command("faults")
@common.topology_option
@common.default_option("--tp", "groups", default="32", metavar="N,...", help="The NPUs of a group: one size or several.")
@click.option(
    "--npus", type=_AT_LEAST, help=f"The NPUs of the machine. A smaller topology is repeated. [default: at least {_NPUS}]"
)
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="A log of faults: a CSV of server,start_day,end_day. [default: the published trace of InfiniteHBD]",
)
@click.option("--servers", type=_AT_LEAST, help="The servers of --log, including those without a fault.")
@common.default_option("--npus-per-server", "server", type=_AT_LEAST, default=GPUS, help="The NPUs of a server of the log.")
@common.default_option("--npus-per-node", "node", type=_AT_LEAST, default=4, help="The NPUs that fail together.")
@click.option("--rate", type=_SHARE, help="In place of a log: the probability that a node is faulty.")
@common.default_option("--draws", type=_AT_LEAST, default=1000, help="The number of random states of the machine, for --rate.")
@click.option("--mtbf", type=_SPAN, help="In place of a log: how long a node works on average (12h, 60d or 3y).")
@click.option("--afr", type=_SHARE, help="In place of --mtbf, the share of the nodes that fail in a year.")
@click.option("--mttr", type=_SPAN, help="The repair of a node takes this time on average.")
@common.default_option("--days", type=_SPAN, default="365d", help="The time for which --mtbf or --afr draws faults.")
@click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="npus=64,mtbf=1y,mttr=4h",
    help="A part, such as a switch, that takes so many NPUs with it; repeat it.",
)
@click.option(
    "--checkpoint", type=common.TIME, help="The time of a checkpoint. Goodput is added, with the best interval of checkpoints."
)
@click.option("--restart", type=common.TIME, default="0s", help="The time of a restart, for --checkpoint.")
@click.option("--mfu", type=_SHARE, help="The MFU of the job while it runs. Goodput is then a share of the machine's peak.")
@click.option("--job", type=_AT_LEAST, help="The NPUs of a job. The share of the time in which it must wait for room is added.")
@click.option(
    "--prices", metavar="BOOK|FILE.toml", help="Add the aggregate cost: the network by this price book, and lost NPUs by --npu."
)
@click.option("--npu", type=NPU_PRICE, help="The price of an NPU, for --prices.")
@common.default_option("--seed", type=click.IntRange(min=0), default=0, help="The seed of random numbers.")
@click.option("--png", type=OutputFile(".png"), help="Draw the waste over time, and its distribution, to this file.")
@html_option
@common.import_option
@common.json_option
def faults_command(
    topologies: tuple[str, ...], groups: str, png: Path | None, html: Path | None, as_json: bool, **asked: Any
) -> None:
    """Compute what faults leave of a machine: NPUs that work but find no group, the largest job, and goodput.

    \b
    emu faults --topology infinitehbd:k=3 --topology nvl:72 --tp 32
    emu faults --topology big-switch:n=2880 --tp 8,16,32 --rate 1.17%
    emu faults --topology ub-mesh:rack-full --tp 16 --mtbf 1y --mttr 2d --npus-per-node 1
    """
    source, sizes = _source(asked), _groups(groups)
    _check_price(asked)
    book = None if asked["prices"] is None else find_book(asked["prices"])
    built = [build_topology(word) for word in topologies]
    npus = asked["npus"] or max(_NPUS, *(topology.n_npus for topology in built))
    machines = [machine_of(topology, npus) for topology in built]
    found = {size: source(size) for size in {machine.npus for machine in machines}}
    networks = {machine.topology.name: cost(machine.topology, book) if book else None for machine in machines}
    cases = [(machine, group) for machine in machines for group in sizes]
    for machine, group in cases:
        check_group(machine, group, asked["job"])
    rows = []
    for machine, group in with_progress(cases, f"counting groups, {len(cases)} times", len(cases)):
        row = waste(machine, group, found[machine.npus].states)
        rows.append(_machine_waste(row, found[machine.npus].per_day, networks[machine.topology.name], asked))
    notes = list(dict.fromkeys(note for each in found.values() for note in each.notes))
    if book is not None:
        lost = f"the average number of NPUs that are faulty or find no group, at {asked['npu'].dollars:g} $ each"
        notes.append(f"aggregate cost: the network by the prices of {book.source or book.name}, and {lost}")
    told = {"rows": [waste_as_json(kept) for kept in rows], "assumptions": notes}
    common.print_result(told, lambda: faults_report(rows, notes), as_json=as_json)
    write_png(png, "chart.job_chart:waste_figure", [kept.waste for kept in rows])
    write_html(html, "html.waste_page:faults_page", rows, notes)


def _machine_waste(row: Waste, per_day: float, network: Cost | None, asked: dict[str, Any]) -> MachineWaste:
    """Return the waste of a machine, with goodput, waiting time and cost where they were asked for.

    Args:
        row: The waste.
        per_day: Faults of the machine in a day.
        network: The cost of its network; None: not asked for.
        asked: The options of the command.
    """
    return MachineWaste(
        row,
        _restarts(per_day, asked["checkpoint"], asked["restart"]),
        1.0 if asked["mfu"] is None else asked["mfu"],
        None if asked["job"] is None else row.waiting(asked["job"]),
        *(
            None if each is None else each.aggregate_dollars_per_npu(row.availability, asked["npu"].dollars)
            for each in (network, network and network.high)
        ),
    )


def _restarts(per_day: float, checkpoint: int | None, restart: int) -> Restarts | None:
    """Return what checkpoints and restarts cost with the best interval of checkpoints; None where this was not asked for.

    Args:
        per_day: Faults of the machine in a day.
        checkpoint: The time of a checkpoint in ticks; None: not asked for.
        restart: The time of a restart in ticks.

    Raises:
        InputError: the faults have no times.
    """
    if checkpoint is None:
        return None
    if not per_day:
        raise InputError("faults: --checkpoint needs faults with times, and --rate has none; give --log, or --mtbf and --mttr")
    return optimal_restarts(seconds(checkpoint), seconds(restart), 86400 / per_day)


def _check_price(asked: dict[str, Any]) -> None:
    """Refuse a price without its other half, and MFU without goodput.

    Raises:
        InputError: an option is missing.
    """
    if (asked["prices"] is None) != (asked["npu"] is None):
        raise InputError("faults: --prices and --npu go together; give both or none")
    if asked["mfu"] is not None and asked["checkpoint"] is None:
        raise InputError("faults: --mfu is a factor of goodput, which needs --checkpoint; add --checkpoint, or leave --mfu out")


def _source(asked: dict[str, Any]) -> Callable[[int], Faults]:
    """Return the source of faults that the options give: a log, a rate, or drawn lifetimes.

    Raises:
        InputError: options exclude one another, or an option needs another one.
    """
    node, seed, mttr = asked["node"], asked["seed"], asked["mttr"]
    given = [flag for flag in ("log", "rate", "mtbf", "afr") if asked[flag] is not None]
    if len(given) > 1:
        raise InputError(f"faults: --{' and --'.join(given)} exclude each other; give one of them")
    if asked["rate"] is not None:
        if asked["domains"] or mttr:
            raise InputError(
                "faults: --rate has no times, so that --domain and --mttr do not apply; give --mtbf or --afr instead"
            )
        return partial(probable_faults, node=node, rate=asked["rate"], draws=asked["draws"], seed=seed)
    parts = tuple(_domain(text, node) for text in asked["domains"])
    mtbf = DAYS_PER_YEAR / asked["afr"] if asked["afr"] else asked["mtbf"]
    if (mtbf is None) != (mttr is None):
        raise InputError("faults: --mtbf or --afr, and --mttr go together; give both or none")
    if mtbf is not None:
        return partial(drawn_faults, node=node, parts=(PartLifetimes(mtbf, mttr), *parts), days=asked["days"], seed=seed)
    log = production_log() if asked["log"] is None else read_log(asked["log"], asked["servers"] or 0)
    return LoggedFaults(node, seed, log, str(asked["log"] or SOURCE), asked["server"], parts).of
