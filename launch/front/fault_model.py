"""The faults of a machine as options give them: by a log, by a rate, or by lifetimes from which they are drawn."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from emu.errors import InputError, must_be
from emu.registry import parse_call
from emu.study.faults.source import (
    DAYS_PER_YEAR,
    Faults,
    LoggedFaults,
    PartLifetimes,
    independent_faults,
    lifetime_faults,
    read_log,
)
from emu.units import is_whole
from launch.data.presets import SOURCE, production_log
from launch.front.inputs import several

_COUNTS = ("npus", "npus_per_node", "npus_per_server", "servers", "draws", "seed")
_UNITS = {"h": 1 / 24, "d": 1.0, "y": DAYS_PER_YEAR}


def days_of(text: str, name: str) -> float:
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


def share_of(given: float | str, name: str) -> float:
    """Return a share from 0 up to below 1, from a number or a text.

    Args:
        given: The share, such as 1.17% or 0.0117.
        name: The option that gives it.

    Raises:
        InputError: the text is no such share.
    """
    text, share = read_share(given)
    if not 0 <= share < 1:
        raise must_be("faults", name, "a share of 0 or more and below 1, such as 1.17% or 0.0117", text)
    return share


def read_share(given: float | str) -> tuple[str, float]:
    """Return the text of a share, such as 90% or 0.9, and its value; -1 if it is none."""
    text = given if isinstance(given, str) else f"{Decimal(str(given)):f}"
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", text)
    return text, float(found[1]) / (100 if found[2] else 1) if found else -1.0


# The options of a fault model that have an effect only with another one, or not beside another one.
FAULT_NEEDS = {"servers": "log", "draws": "rate", "days": "mtbf|afr"}
FAULT_EXCLUDES = {"npus_per_server": "rate|mtbf|afr"}


def check_counts(arguments: dict[str, Any], question: str) -> None:
    """Refuse a number of NPUs, servers or draws below 1, and a seed below 0, which the command line has refused already.

    Raises:
        InputError: naming the question and the argument.
    """
    for name in _COUNTS:
        least = 0 if name == "seed" else 1
        if arguments.get(name) is not None and arguments[name] < least:
            raise must_be(question, f"--{name.replace('_', '-')}", f"{least} or more", arguments[name])


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
        days_of(given["mtbf"], "--domain mtbf"), days_of(given["mttr"], "--domain mttr"), int(given["npus"]) // node
    )


def fault_model(arguments: dict[str, Any]) -> Callable[[int], Faults]:
    """Return the function that gives the faults of a machine of so many NPUs, by a log, a rate, or drawn lifetimes.

    Raises:
        InputError: options exclude one another, or an option needs another one.
    """
    check_counts(arguments, "faults")
    node, seed = arguments["npus_per_node"], arguments["seed"]
    mtbf, mttr = (None if arguments[name] is None else days_of(arguments[name], f"--{name}") for name in ("mtbf", "mttr"))
    span = days_of(arguments["days"], "--days")
    given = [flag for flag in ("log", "rate", "mtbf", "afr") if arguments[flag] is not None]
    if len(given) > 1:
        raise InputError(f"faults: --{' and --'.join(given)} exclude each other; give one of them")
    if arguments["rate"] is not None:
        return _without_times(arguments)
    parts = tuple(_failure_domain(text, node) for text in several(arguments["domain"]))
    if arguments["afr"] is not None:
        mtbf = _mtbf_of(arguments["afr"])
    if (mtbf is None) != (mttr is None):
        raise InputError("faults: --mtbf or --afr, and --mttr go together; give both or none")
    if mtbf is not None and mttr is not None:
        return partial(lifetime_faults, npus_per_node=node, parts=(PartLifetimes(mtbf, mttr), *parts), days=span, seed=seed)
    return _logged_faults(arguments, parts).for_machine


def _mtbf_of(afr: float | str) -> float:
    """Return the days between two faults of a node, of whose kind this share fails in a year.

    Raises:
        InputError: it is no share, or none fails.
    """
    share = share_of(afr, "--afr")
    if not share:
        raise must_be("faults", "--afr", "a share above 0 and below 1, such as 4%", str(afr), "nodes that never fail: --rate 0")
    return DAYS_PER_YEAR / share


def _without_times(arguments: dict[str, Any]) -> Callable[[int], Faults]:
    """Return the function that gives the faults of a machine by `--rate`.

    Raises:
        InputError: another option needs faults with times.
    """
    if several(arguments["domain"]) or arguments["mttr"] is not None:
        raise InputError("faults: --rate has no times, so that --domain and --mttr do not apply; give --mtbf or --afr instead")
    rate, node, draws = share_of(arguments["rate"], "--rate"), arguments["npus_per_node"], arguments["draws"]
    return partial(independent_faults, npus_per_node=node, rate=rate, draws=draws, seed=arguments["seed"])


def _logged_faults(arguments: dict[str, Any], parts: tuple[PartLifetimes, ...]) -> LoggedFaults:
    """Return the source of faults of a log, that of the options or the published one, with domains that are drawn beside it."""
    path, seed = arguments["log"], arguments["seed"]
    log = production_log() if path is None else read_log(Path(path), arguments["servers"] or 0)
    return LoggedFaults(arguments["npus_per_node"], seed, log, str(path or SOURCE), arguments["npus_per_server"], parts)
