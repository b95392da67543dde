"""The arguments of `emu queue`: what is impossible of them, and the jobs, times and faults that they give."""

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.study.faults.source import Faults
from emu.study.queue.workload.arrivals import read_arrivals
from emu.study.queue.workload.queued_job import DAY_US, US_PER_S, QueuedJob, RunCosts
from emu.units import parse_long_time
from launch.data.job_mixes import find_mix
from launch.front.fault_model import check_counts, fault_model, read_share

_DEFAULT_JOBS = 3000
_LEAST_DAYS, _MOST_DAYS = 0.0001, 3650  # nine seconds, ten years
_DAY_DIGITS = 6  # of the days of a log of faults, which are a text
_MOST_LOAD = 10.0  # times the NPU time of the machine


def check_arguments(arguments: dict[str, Any]) -> None:
    """Check the arguments that need no file and no topology.

    Raises:
        InputError: one is impossible, or two exclude each other.
    """
    if (arguments["arrivals"] is None) == (arguments["mix"] is None):
        got = "none" if arguments["mix"] is None else "both"
        raise must_be("queue", "jobs", "given by --arrivals or by --mix, one of them", got)
    if not isinstance(arguments["arrivals"], str | Path | None):
        raise must_be("queue", "--arrivals", "the name of a file", arguments["arrivals"])
    check_counts(arguments, "queue")
    for name, least, most in (("days", _LEAST_DAYS, _MOST_DAYS), ("jobs", 1, 10**7), ("tp", 1, 2**24), ("seeds", 1, 10**4)):
        if arguments[name] is not None and not least <= arguments[name] <= most:
            raise must_be("queue", f"--{name}", f"from {least} to {most}", arguments[name])
    if arguments["seeds"] > 1 and arguments["mix"] is None and arguments["faultless"]:
        raise must_be("queue", "--seeds", "1 where jobs are those of a file and no part fails", arguments["seeds"])


def run_costs(arguments: dict[str, Any]) -> RunCosts:
    """Return the times of checkpoints and of starts."""
    return RunCosts(*(_time_us(arguments[name], name) for name in ("checkpoint", "checkpoint_every", "restart")))


def _time_us(given: float | str, name: str) -> int:
    """Return a time in whole microseconds.

    Raises:
        InputError: it is none, below a microsecond but not 0, or too long.
    """
    flag = f"--{name.replace('_', '-')}"
    exact_us = parse_long_time(given, flag) * US_PER_S
    if exact_us and not 1 <= exact_us <= _MOST_DAYS * DAY_US:
        raise must_be("queue", flag, f"0s, or from 1us to {_MOST_DAYS}d", given)
    return int(exact_us.to_integral_value(ROUND_HALF_EVEN))


def faults_of(arguments: dict[str, Any], sizes: set[int]) -> dict[int, Faults]:
    """Return the faults of a machine of each number of NPUs, without a machine where faults are left out.

    Raises:
        InputError: options exclude one another, or a log is shorter than the account.
    """
    if arguments["faultless"]:
        return {}
    days = arguments["days"]
    drawn_days = ceil(days * 10**_DAY_DIGITS) / 10**_DAY_DIGITS
    drawn = {**arguments, "rate": None, "draws": 1, "days": f"{drawn_days:.{_DAY_DIGITS}f}d"}
    found = {size: fault_model(drawn)(size) for size in sorted(sizes)}
    for faults in found.values():
        if faults.log is not None and faults.log.days < days:
            raise must_be("queue", "--days", f"at most {faults.log.days:g}, those of the log of faults", f"{days:g}")
    return found


def jobs_of(arguments: dict[str, Any], npus: int) -> tuple[Callable[[int], tuple[QueuedJob, ...]], tuple[str, ...]]:
    """Return the function that gives the jobs of a seed, and sentences on where they come from.

    Args:
        arguments: The arguments of the question.
        npus: The NPUs of the smallest machine.

    Raises:
        InputError: a line of the file is impossible, or no mix has that name.
    """
    days = arguments["days"]
    if arguments["mix"] is None:
        listed, told = _jobs_in_time(read_arrivals(Path(arguments["arrivals"]), npus), days, str(arguments["arrivals"]))
        return partial(_listed, listed), told
    mix, count = find_mix(arguments["mix"]), arguments["jobs"] or _DEFAULT_JOBS
    drawn, load_us = f"{count} jobs are drawn for {days:g} days, {_seeds_in_words(arguments)}", None
    if arguments["load"] is not None:
        wanted = _load(arguments["load"])
        load_us = wanted * npus * days * DAY_US
        those = "them" if npus >= mix.figures.most_npus else f"those of at most {npus} NPUs"
        drawn += f"; one factor of all run times makes {those} ask for {100 * wanted:g} % of the time of {npus} NPUs"
    return partial(mix.draw, count, days, npu_us=load_us, most_npus=npus), (*mix.notes, drawn)


def _listed(jobs: tuple[QueuedJob, ...], seed: int) -> tuple[QueuedJob, ...]:
    """Return the jobs of a file, which are the same for all seeds."""
    return jobs


def seeds_of(arguments: dict[str, Any]) -> range:
    """Return the seeds, one after another from `seed` on."""
    return range(arguments["seed"], arguments["seed"] + arguments["seeds"])


def _seeds_in_words(arguments: dict[str, Any]) -> str:
    """Return the seeds as text."""
    seeds = seeds_of(arguments)
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _jobs_in_time(jobs: tuple[QueuedJob, ...], days: float, name: str) -> tuple[tuple[QueuedJob, ...], tuple[str, ...]]:
    """Return the jobs of a file that are submitted before the account ends, and sentences on them.

    Raises:
        InputError: there is none.
    """
    found = tuple(job for job in jobs if job.submit_us < round(days * DAY_US))
    if not found:
        what = f"before the end of the account, {days:g} days or {days * DAY_US / US_PER_S:.12g} s"
        raise must_be(jobs[0].where, "submit", what, f"{jobs[0].submit_us / US_PER_S:.12g}", "give more --days")
    late = len(jobs) - len(found)
    left_out = f"{late} of its jobs {'are' if late > 1 else 'is'} submitted after the {days:g} days, and left out"
    return found, (f"the jobs are those of {name}", *([left_out] if late else []))


def _load(given: float | str) -> float:
    """Return the NPU time that jobs ask for, as a share of the machine's.

    Raises:
        InputError: it is no share, 0, or more than the most.
    """
    text, share = read_share(given)
    if not 0 < share <= _MOST_LOAD:
        raise must_be("queue", "--load", f"a share above 0, at most {_MOST_LOAD:g}, such as 80% or 1.2", text)
    return share
