"""The shell around a question: its options go to a function of `launch.front`, whose answer is printed and saved."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from emu.errors import RunError, WriteError
from emu.trace.trace_file import save
from launch.cli.options.files import may_fail, print_text, write_output
from launch.front.result import Result
from launch.show.json_text import json_text

# Options that save the answer, where the question takes none of that name.
FILES = ("png", "html", "csv", "docs", "xml", "trace", "timeline")


def show(ask: Callable[..., Result[Any]], options: dict[str, Any], **more: Any) -> int:
    """Ask a question with the options of a command, print and save the answer, and return the exit code.

    Args:
        ask: The function of the question.
        options: The options by name: those that the function takes, and those that say what is printed and saved.
        more: Further arguments of the function.

    Raises:
        InputError: as the function.
        RunError: as the function, or the answer has a failure; it is raised after everything is printed and saved.
    """
    taken = inspect.signature(ask).parameters
    files = {name: options.pop(name) for name in FILES if name in options and name not in taken}
    as_json, every_rank = options.pop("as_json", False), options.pop("every_rank", False)
    answer = ask(**options, **more)
    csv = files.pop("csv", None)
    if answer.has_report:
        print_answer(answer, csv, as_json=as_json)
    for name, path in files.items():
        if path is not None:
            how = {"every_rank": every_rank} if name == "timeline" else {}
            write_output(path, partial(getattr(answer, f"save_{name}"), **how))
    if answer.failure is not None:
        raise RunError(answer.failure)
    return answer.exit_code


def keep_trace(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a function in place of the file of `--trace`: the command reports a write error at its end."""
    path: Path | None = options["trace"]
    return {**options, "trace": lambda recorded: write_output(path, partial(save, recorded))}


def print_answer(answer: Result[Any], csv: Path | None = None, *, as_json: bool) -> None:
    """Print an answer as JSON, or its text.

    Args:
        answer: The answer.
        csv: The file that takes its rows in place of the text, which is printed where that fails; None: none.
        as_json: Whether JSON is printed.
    """
    if as_json:
        print_json(answer.as_json())
    elif csv is None:
        print_text(answer.text())
    if csv is not None:
        with may_fail():
            try:
                answer.save_csv(csv)
            except WriteError:
                if not as_json:
                    print_text(answer.text())
                raise


def print_result(result: object, text: Callable[[], str], *, as_json: bool) -> None:
    """Print a result as JSON, or the text of its report."""
    if as_json:
        print_json(result)
    else:
        print_text(text())


def print_json(value: object) -> None:
    """Print a result as JSON on stdout."""
    print_text(json_text(value))
