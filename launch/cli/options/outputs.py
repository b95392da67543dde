"""Options that name the files that a command writes.

All are checked before anything is computed. A file that cannot be written in the end is reported after all other output.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

import click

from emu.errors import EmuError, InputError, WriteError, must_be
from emu.files import check_file, check_folder, is_stream

_FAILURES, _READ = "emu.failures", "emu.read"


class OutputFile(click.ParamType[Path]):
    """The type of an option that names a file to write.

    Args:
        ending: The ending that the name must have; "": any.
    """

    name = "FILE"

    def __init__(self, ending: str = "") -> None:
        self._ending = ending

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        return Path(value)

    def check(self, flag: str, path: Path) -> None:
        """Refuse a path that cannot be written.

        Raises:
            InputError: as `check_file`; or the name has another ending.
        """
        check_file(flag, path)
        if path.suffix.lower() != self._ending and self._ending and not is_stream(path):
            raise must_be(flag, "FILE", f"a name that ends in {self._ending}", str(path))


class OutputFolder(click.ParamType[Path]):
    """The type of an option that names a folder to write to; a missing folder is made."""

    name = "DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        return Path(value)

    def check(self, flag: str, path: Path) -> None:
        """Refuse a path that cannot be written to.

        Raises:
            InputError: as `check_folder`.
        """
        check_folder(flag, path)


@cache
def with_outputs(command: click.Command) -> click.Command:
    """Return the command, or the group with all its commands, that checks its outputs first and reports write errors last."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_outputs(each)
    elif command.callback is not None:
        command.callback = _with_checks(command.callback)
    return command


def remember_input(flag: str, path: Path) -> None:
    """Note a file that the running command has read, so that no output overwrites it."""
    click.get_current_context().meta.setdefault(_READ, []).append((flag, path))


@contextmanager
def may_fail() -> Iterator[None]:
    """Go on after a write error inside the context; the command reports it at its end."""
    try:
        yield
    except WriteError as error:
        _failures().append(str(error))


def write_png(png: Path | None, chart: str, *drawn: object) -> None:
    """Draw a picture to the file of `--png`, if one was given.

    Args:
        png: The file; None: no picture.
        chart: The function of `launch.show` that returns the figure, such as `chart.step_chart:parts_figure`.
        drawn: The arguments of that function.
    """
    if png is not None:
        figure = _late(chart)(*drawn)
        with may_fail():
            _late("canvas:save")(figure, png)


def write_html(html: Path | None, page: str, *shown: object) -> None:
    """Write a page to the file of `--html`, if one was given.

    Args:
        html: The file; None: no page.
        page: The function of `launch.show` that returns the page, such as `html.step_page:step_page`.
        shown: The arguments of that function.
    """
    if html is not None:
        report = _late(page)(*shown)
        with may_fail():
            _late("html.page:write_page")(report, html)


def _late(name: str) -> Callable[..., Any]:
    """Return a function of `launch.show`, given as `module:function`; the import is late because it loads matplotlib."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"launch.show.{module}"), function)
    return found


def print_text(text: str, *, nl: bool = True) -> None:
    """Print text on stdout; a failure to print is reported at the end of the command.

    A closed pipe, as after `| head`, is not reported.
    """
    try:
        click.echo(text, nl=nl)
    except OSError as error:
        _failures().append("" if isinstance(error, BrokenPipeError) else f"stdout: cannot print: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes the rest of the buffer


def _failures() -> list[str]:
    """Return the list of write errors so far; an empty line stands for an error that is not reported."""
    found: list[str] = click.get_current_context().meta.setdefault(_FAILURES, [])
    return found


def _with_checks(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback of a command with checks before it and write errors after it."""

    @wraps(callback)
    def called(*given: Any, **options: Any) -> Any:
        _check(click.get_current_context())
        try:
            result = callback(*given, **options)
        except EmuError as error:
            if lines := [line for line in _failures() if line]:
                error.args = ("; ".join((str(error), *lines)),)
            raise
        return _exit_code(result) if _failures() else result

    return called


def _exit_code(result: object) -> int:
    """Return the exit code of a command that could not write everything: its own if that is not 0.

    Raises:
        WriteError: naming the files that could not be written.
    """
    code = result if isinstance(result, int) and result else WriteError.exit_code
    if told := "; ".join(filter(None, _failures())):
        error = WriteError(told)
        error.exit_code = code
        raise error
    return code


def _check(ctx: click.Context) -> None:
    """Refuse outputs that cannot be written, one file for two outputs, and an output that is also an input.

    Raises:
        InputError: naming the option.
    """
    taken = {_real_path(path): flag for flag, path in _input_files(ctx)}
    for param in ctx.command.params:
        path = ctx.params.get(param.name or "")
        if isinstance(param.type, OutputFile | OutputFolder) and path is not None:
            flag = _flag(param)
            param.type.check(flag, path)
            if not is_stream(path) and taken.setdefault(_real_path(path), flag) != flag:
                raise InputError(
                    f"{flag}: cannot write {str(path)!r}: {taken[_real_path(path)]} names it, too; name another file"
                )


def _input_files(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Yield the option and the path of each file that the command reads; an option such as `--topology` may name one."""
    yield from ctx.meta.get(_READ, ())
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if not isinstance(param.type, OutputFile | OutputFolder | click.types.UnprocessedParamType):
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str | Path) and os.path.isfile(each):  # noqa: PTH113  a value may be no path at all
                    yield _flag(param), Path(each)


def _real_path(path: Path) -> str:
    """Return the path without links."""
    return os.path.realpath(path)


def _flag(param: click.Parameter) -> str:
    """Return the name of an option or argument as the user writes it."""
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
