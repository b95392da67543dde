"""Jobs from a table of TOML, or a dict of the same form: each has a model, a trace or a collective in a loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from emu.collective.choice import Choice
from emu.collective.chooser_names import AUTO
from emu.errors import InputError, at_place, must_be
from emu.files import named_path
from emu.model.plan.plan_text import parse_plan
from emu.registry import check_known_settings
from emu.study.choice.site import choosers
from emu.study.jobs.job import MOST_RANKS, Job, TraceWork, TrainingWork, Work, loop_work
from emu.study.training.estimate import EstimateRequest
from emu.topology.description.values import load_toml
from emu.trace.steps import equal_steps, one_step, with_steps
from emu.trace.timed_dtype import usual_dtype
from emu.trace.trace import Trace
from emu.units import parse_size, parse_time
from launch.front import inputs
from launch.front.steps.replays import named_trace
from launch.front.steps.timed_steps import TraceTiming, usual_device

SETTINGS = ("steps", "time", "placement", "shift", "share", "routes")
_COMMON = ("name", "npus", "planes", "start", "weight", "priority", "algorithm")
# The key that says what a job does, with the other keys of such a job: those that it needs, and those that it may have.
_KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "model": (("plan", "global_batch", "seq"), ("device", "stack")),
    "trace": ((), ("device", "dtype", "stack")),
    "operation": (("size", "ranks"), ("pause",)),
}
JobsLike = str | Path | Mapping[str, Any]  # a file, or a dict of the same form


class JobTables(NamedTuple):
    """The jobs of a file, and its settings as they are written."""

    jobs: tuple[Job, ...]
    settings: Mapping[str, Any]


def jobs_of(given: JobsLike) -> JobTables:
    """Return the jobs and the settings of a file, or of a dict of the same form.

    Raises:
        InputError: A table or a key is unknown or missing, or a value is impossible; the line names the job and the key.
    """
    where, tables = _tables_of(given)
    check_known_settings(where, ("settings", "job"), tables)
    settings, rows = tables.get("settings", {}), tables.get("job", ())
    if not isinstance(settings, Mapping):
        raise must_be(where, "settings", "a table", settings)
    check_known_settings(f"{where}: [settings]", SETTINGS, settings)
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise must_be(where, "job", "a table for each job", rows or "none", "write a [[job]] for each")
    return JobTables(tuple(_job(row, number, where) for number, row in enumerate(rows)), settings)


def _tables_of(given: JobsLike) -> tuple[str, Mapping[str, Any]]:
    """Return what error messages call the jobs that are given, and their tables.

    Raises:
        InputError: It is no path and no dict, or the file cannot be read or is no TOML.
    """
    if isinstance(given, Mapping):
        return "jobs", given
    if not isinstance(given, str | Path):
        raise must_be("", "jobs", "a .toml file or a dict of the same form", given)
    path = named_path("jobs", "jobs", given)
    return repr(path.name), load_toml(path, "jobs", str(path))


def _job(row: Mapping[str, Any], number: int, where: str) -> Job:
    """Return the job of a table."""
    name = row.get("name", f"job {number}")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise must_be(f"{where}: job {number}", "name", "a text of one line", name)
    place = f"{where}: {name}"
    kind = _kind_of(row, place)
    needed, further = _KINDS[kind]
    check_known_settings(place, (*_COMMON, kind, *needed, *further), row)
    for key in needed:
        if key not in row:
            raise must_be(place, key, f"given beside {kind}", "none")
    with _placed(place):
        work = _WORKS[kind](row)
        _check_algorithms(work.words)
        start = parse_time(_plain(row, "start", str | int | float, "0s"), "start")
        npus, planes = (_numbers(row.get(key, ()), key) for key in ("npus", "planes"))
        return Job(name, work, npus, start, _whole(row, "weight", 1), _whole(row, "priority", 0, least=0), planes)


def _kind_of(row: Mapping[str, Any], place: str) -> str:
    """Return the key that says what a job does.

    Raises:
        InputError: The table has none of them, or several.
    """
    found = [kind for kind in _KINDS if kind in row]
    if len(found) != 1:
        raise must_be(place, "the job", "one with a model, a trace or an operation", " and ".join(found) or "none of them")
    return found[0]


def _training(row: Mapping[str, Any]) -> Work:
    """Return the work of a job that trains a model."""
    plan = parse_plan(_plain(row, "plan", str), global_batch=_whole(row, "global_batch"), seq=_whole(row, "seq"))
    stack = inputs.stack_of(_plain(row, "stack", str, ""))
    words = inputs.algorithm_words(_algorithms(row), stack)
    device = inputs.device_of(usual_device(row.get("device")), stack.precision.activation)
    model = inputs.model_word(row["model"])
    inputs.find_model(model)
    return TrainingWork(EstimateRequest(model, plan, stack, words), device)


def _recorded(row: Mapping[str, Any]) -> Work:
    """Return the work of a job that repeats the step of a trace that stands for its run."""
    if not isinstance(row["trace"], str | Path | Trace) or not str(row["trace"]):
        raise must_be("", "trace", "a file or a folder", row["trace"])
    name, recorded = named_trace(row["trace"])
    given, stack = _algorithms(row), inputs.overheads_of(_plain(row, "stack", str, ""))
    words = inputs.algorithm_words(given, stack)
    timing = TraceTiming((), row.get("device"), row.get("dtype"), words, stack, given).for_trace(recorded)
    dtype = timing.dtype or usual_dtype(recorded)
    steps = with_steps(recorded)
    one = one_step(steps, equal_steps(steps)[0][-1])
    return TraceWork(one, words, timing.build(dtype)[1], dtype, name, stack)


def _loop(row: Mapping[str, Any]) -> Work:
    """Return the work of a job that repeats a collective."""
    size = parse_size(_plain(row, "size", str | int, what="a text with a unit, or a whole number of bytes"), "size")
    pause = parse_time(_plain(row, "pause", str | int | float, "0s"), "pause")
    operation, words = _plain(row, "operation", str), _algorithms(row)
    chosen = tuple(word if "=" in word or word in choosers() else f"{operation}={word}" for word in words) or (AUTO,)
    return loop_work(operation, size, _whole(row, "ranks"), chosen, pause)


_WORKS: Mapping[str, Callable[[Mapping[str, Any]], Work]] = {"model": _training, "trace": _recorded, "operation": _loop}


def _algorithms(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of `algorithm`.

    Raises:
        InputError: They are no text and no list of texts.
    """
    words = inputs.several(row.get("algorithm", ()))
    if not all(isinstance(word, str) for word in words):
        raise must_be("", "algorithm", "a text, or a list of texts", row["algorithm"])
    return words


def _check_algorithms(words: Sequence[str]) -> None:
    """Check that words of `--algorithm` can be read.

    Raises:
        InputError: as `Choice.parse`.
    """
    known = choosers()
    Choice.parse(tuple(word for word in words if word not in known and word.partition("=")[2] not in known))


def _numbers(given: object, key: str) -> tuple[int, ...]:
    """Return the NPUs or planes that a text such as `0-7,16` or a list of numbers and such texts names.

    Raises:
        InputError: It is something else.
    """
    what = "numbers and ranges, such as '0-7,16'"
    found = list[int]()
    for word in given.split(",") if isinstance(given, str) else given if isinstance(given, Sequence) else (given,):
        low, dash, high = str(word).strip().partition("-")
        if isinstance(word, bool) or not low.isdecimal() or (dash and not high.isdecimal()) or int(high or low) < int(low):
            raise must_be("", key, what, word)
        if int(high or low) >= MOST_RANKS:
            raise must_be("", key, f"below {MOST_RANKS}", word)
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def _plain(row: Mapping[str, Any], key: str, kind: Any, usual: Any = None, what: str = "") -> Any:
    """Return the value of a key, after the check of its type.

    Raises:
        InputError: It has another type.
    """
    value = row.get(key, usual)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise must_be("", key, what or ("a text" if kind is str else "a text with a unit, or a number"), value)
    return value


def _whole(row: Mapping[str, Any], key: str, usual: int | None = None, least: int = 1) -> int:
    """Return the whole number of a key, from `least` on.

    Raises:
        InputError: It is something else.
    """
    value = row.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise must_be("", key, f"a whole number of {least} or more", value)
    return value


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Put the file and the job before the message of each InputError that is raised within the context."""
    try:
        yield
    except InputError as error:
        raise at_place(place, error) from None
