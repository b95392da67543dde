"""The output of a command: its options go to a function of `launch.front`, whose answer is printed and saved.

Further functions check the options for output that exclude each other.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from emu.errors import InputError, RunError, WriteError, must_be
from emu.topology.fault_injection.fault_script import at_times, read_faults
from launch.cli.options.files import may_fail, print_text, write_output
from launch.front.argument_rules import check_needs
from launch.front.result import Result, TraceOutput
from launch.show.progress import unfinished_answer
from launch.show.row_file import STDOUT, RowFile, json_text, rows_to

_SAVED_BY = {"png": "picture"}  # the ending of the name of the method, where it is another than that of the option
R = TypeVar("R", bound=Result[Any])

_NEEDS = {"every_rank": "timeline"}  # an option that is no argument of a question: the option without which it does nothing
# Options that save the answer in a file, unless the question has an argument of that name.
FILES = ("png", "html", "docs", "xml", "npz", "trace", "timeline")


def ask_and_save(question: Callable[..., Result[Any]], options: dict[str, Any], **more: Any) -> int:
    """Ask a question with the options of a command, print and save the answer, and return the exit code.

    Args:
        question: The function of the question.
        options: The options by name: those that the function takes, and those that say what is printed and saved.
        more: Further arguments of the function.

    Raises:
        InputError: as the function.
        RunError: as the function, or the answer has a failure; it is raised after everything is printed and saved.
    """
    taken = inspect.signature(question).parameters
    check_needs(question.__name__.replace("_", " "), _NEEDS, {name for name, given in options.items() if given})
    files = {name: options.pop(name) for name in FILES if name in options and name not in taken}
    lanes = {name: options.pop(name) for name in ("every_rank",) if name in options}  # of commands that time ranks
    as_json, out = options.pop("as_json", False), options.pop("out", None)
    answer = ask_and_print(partial(question, **options, **more), out, as_json=as_json)
    for name, path in files.items() if answer.has_report else ():
        if path is not None:
            how = lanes if name == "timeline" else {}
            write_output(path, partial(getattr(answer, f"save_{_SAVED_BY.get(name, name)}"), **how))
    if answer.failure is not None:
        raise RunError(answer.failure)
    return answer.exit_code


def with_trace_output(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the file of `--trace` such that the command reports a write error at its end."""
    path: Path | None = options["trace"]
    return {**options, "trace": None if path is None else TraceOutput(path, write_output)}


def ask_and_print(ask: Callable[[], R], out: Path | None, *, as_json: bool) -> R:
    """Ask a question, print the answer, and return it.

    Args:
        ask: The question with its arguments.
        out: The file that takes the rows of the answer as they become known, in place of its text; None: none.
        as_json: Whether JSON is printed.

    Raises:
        InputError: JSON and the rows are both to be printed; or as the question.
    """
    if out is None:
        with _unfinished_printed(as_json=as_json):
            answer = ask()
        if answer.has_report:
            print_answer(answer, as_json=as_json)
        return answer
    if out == STDOUT and as_json:
        raise InputError("--out: - prints rows, and --json prints the answer; leave one of them out")
    rows = RowFile(out, print_text)
    try:
        with rows_to(rows.add):
            answer = ask()
    except BaseException:
        with may_fail():
            rows.save_known()
        raise
    with may_fail():
        _finish(rows, answer, as_json=as_json)
    return answer


@contextmanager
def _unfinished_printed(*, as_json: bool) -> Iterator[None]:
    """Print the report of what is finished if Ctrl-C or SIGTERM ends the context, and note on the error how to keep rows."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        part = unfinished_answer(stopped)
        if part is not None:
            told = "not printed, as JSON is that of a whole answer" if as_json else "printed"
            if not as_json:
                print_text(part.text())
            stopped.add_note(f"{part.finished} of {part.wanted} were finished and are {told}; --out FILE.jsonl keeps each")
        raise


def _finish(rows: RowFile, answer: Result[Any], *, as_json: bool) -> None:
    """Write the rows of an answer to their file, and print the answer if that is asked for or the file fails.

    Raises:
        WriteError: the file cannot be written.
    """
    if as_json:
        print_answer(answer, as_json=True)
    try:
        rows.finish(answer.records())
    except WriteError:
        if not as_json:
            print_answer(answer, as_json=False)
        raise


def print_answer(answer: Result[Any], *, as_json: bool) -> None:
    """Print an answer as JSON, or its text."""
    print_text(json_text(answer.as_json()) if as_json else answer.text())


def check_sweep(where: str, options: Mapping[str, Any], *single: str) -> None:
    """Check that a sweep has no options that show a single step.

    Args:
        where: The name of the command.
        options: The options of the command.
        single: The names of those that show one step.

    Raises:
        InputError: one of them was given.
    """
    for name in single:
        given = options[name]
        if options["sweep"] and given:
            told = ", ".join(given) if isinstance(given, tuple) else str(given)
            raise must_be(where, f"--{name}", "left out where there is a --sweep", told, "it shows a single step")


def check_fault(options: Mapping[str, Any], *single: str) -> None:
    """Check that a job with faults or checkpoints has no options that show a single step.

    Args:
        options: The options of the command.
        single: The names of those that show one step.

    Raises:
        InputError: one of them was given.
    """
    given = [name for name in single if options[name]]
    if given and _reports_every_step(options):
        what = "shows a single step, and --fault and --checkpoint report every step of a job"
        raise InputError(f"--{given[0]}: {what}; leave --{given[0]} out")


def check_job_picture(options: Mapping[str, Any]) -> None:
    """Check that `--png` is given only for a job with faults or checkpoints, whose steps it draws.

    Raises:
        InputError: it was given.
    """
    if options["png"] is not None and not _reports_every_step(options):
        none = "each --fault is at a time within one step" if options["fault"] else "no --fault is given"
        mend = "add a --fault at a step" if options["fault"] else "add a --fault"
        raise InputError(f"--png: draws the steps of a job with faults, and {none}; {mend}")


def _reports_every_step(options: Mapping[str, Any]) -> bool:
    """Return whether the command reports every step of a job; a paced run with faults at times reports one step.

    Raises:
        InputError: a file of faults cannot be read, or a text is no fault.
    """
    if options.get("checkpoint"):
        return True
    faults = read_faults(options["fault"])
    return bool(faults) and not ("pace" in options and at_times(faults))
