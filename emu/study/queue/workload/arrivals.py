"""The jobs of a queue as a CSV file lists them, a line for each, in the order of their submission.

`submit` and `seconds` are in seconds; work is `seconds`, or `steps` of a `model` with a `plan`, a `global_batch` and a `seq`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from emu.errors import InputError, at_place, must_be
from emu.registry import unknown
from emu.study.queue.workload.queued_job import US_PER_S, JobModel, QueuedJob
from emu.topology.description.values import csv_rows
from emu.units import is_whole

NEEDED = ("submit", "npus")
TRAINED = tuple(field.name for field in fields(JobModel))
KNOWN = (*NEEDED, "seconds", "priority", *TRAINED)
_MOST_S, _MOST = 10**9, 10**9  # seconds of a time, about 32 years; a whole number
_Row = Mapping[str, str]


def read_arrivals(path: Path, most_npus: int) -> tuple[QueuedJob, ...]:
    """Return the jobs of a CSV file.

    Args:
        path: The path of the file.
        most_npus: The NPUs of the smallest machine.

    Raises:
        InputError: The file or a column is missing or unknown, or a line has an impossible value; the line is named.
    """
    name, jobs = str(path), list[QueuedJob]()
    with csv_rows(path, "--arrivals", name, NEEDED) as reader:
        _check_columns(reader.fieldnames or (), f"{name}, line 1")
        for row in reader:
            jobs.append(_job(row, len(jobs), f"{name}, line {reader.line_num}", most_npus))
    if not jobs:
        raise InputError(f"{name}, line 2: a job must follow the names of the columns, got none")
    for before, job in pairwise(jobs):
        if job.submit_us < before.submit_us:
            what = f"{before.submit_us / US_PER_S:g} or later, as in the line before"
            raise must_be(job.where, "submit", what, f"{job.submit_us / US_PER_S:g}", "sort the lines by submit")
    return tuple(jobs)


def _check_columns(found: Sequence[str], where: str) -> None:
    """Refuse columns that no job has, that come twice, or that say nothing of the work."""
    for column in found:
        if column not in KNOWN:
            raise at_place(where, unknown("column of arrivals", column, KNOWN))
    if len(set(found)) < len(found):
        raise must_be(where, "columns", "different", ",".join(found))
    if "seconds" not in found and not set(TRAINED) <= set(found):
        raise must_be(where, "columns", f"submit, npus, and seconds or {', '.join(TRAINED)}", ",".join(found))


def _job(row: Mapping[str | None, object], number: int, where: str, most_npus: int) -> QueuedJob:
    """Return the job of a line.

    Args:
        row: The texts by column; a line that is too short or too long has other values.
        number: The number of the job.
        where: The file and the line, for messages.
        most_npus: The NPUs of the smallest machine.
    """
    texts = {str(column): text.strip() for column, text in row.items() if isinstance(text, str)}
    beyond = row.get(None, [])
    if len(texts) < len(row):
        got = len(texts) + (len(beyond) if isinstance(beyond, list) else 0)
        raise must_be(
            where, "the line", f"{len(row) - (None in row)} values", got, "put a value with commas into double quotes"
        )
    npus = _whole(texts["npus"], "npus", where, 1)
    if npus > most_npus:
        raise must_be(where, "npus", f"at most {most_npus}, those of the machine", npus, "take a larger machine (--npus)")
    submit_us, priority = _time_us(texts["submit"], "submit", where), _priority(texts.get("priority", ""), where)
    trained = _trained(texts, where)
    if (trained is None) == (not texts.get("seconds", "")):
        raise must_be(where, "work", "seconds, or steps of a model, one of them", "none" if trained is None else "both")
    work_us = 0 if trained else _time_us(texts["seconds"], "seconds", where, least_us=1)
    return QueuedJob(number, submit_us, npus, work_us, priority, where, trained)


def _trained(texts: _Row, where: str) -> JobModel | None:
    """Return the training that is the work of a job; None if its line has no model."""
    given = [name for name in TRAINED if texts.get(name, "")]
    if not given:
        return None
    if len(given) < len(TRAINED):
        missing = ", ".join(name for name in TRAINED if name not in given)
        raise must_be(where, "a job with a model", f"given all of {', '.join(TRAINED)}", f"none of {missing}")
    batch, seq, steps = (_whole(texts[name], name, where, 1) for name in ("global_batch", "seq", "steps"))
    return JobModel(texts["model"], texts["plan"], batch, seq, steps)


def _whole(text: str, name: str, where: str, least: int) -> int:
    """Return a whole number of a line, from `least` on."""
    if not is_whole(text) or not least <= int(text) <= _MOST:
        raise must_be(where, name, f"a whole number of {least} or more", text)
    return int(text)


def _priority(text: str, where: str) -> int:
    """Return a priority: a whole number, 0 where the line has none."""
    sound = is_whole(text.removeprefix("-")) if text else True
    if not sound or abs(int(text or 0)) > _MOST:
        raise must_be(where, "priority", "a whole number; larger goes first", text)
    return int(text or 0)


def _time_us(text: str, name: str, where: str, least_us: int = 0) -> int:
    """Return a time of a line in whole microseconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_S or round(value * US_PER_S) < least_us:
        what = f"seconds above 0, at most {_MOST_S:g}" if least_us else f"seconds of 0 or more, at most {_MOST_S:g}"
        raise must_be(where, name, what, text)
    return round(value * US_PER_S)
