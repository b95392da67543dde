"""Options that name what a command writes: all are checked before anything is computed; what fails after all is told last."""

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
    """A file that a command writes.

    Args:
        ending: Of its name, where what reads it goes by that; "": any.
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
            InputError: as `check_file`; or another ending.
        """
        check_file(flag, path)
        if path.suffix.lower() != self._ending and self._ending and not is_stream(path):
            raise must_be(flag, "FILE", f"a name that ends in {self._ending}", str(path))


class OutputFolder(click.ParamType[Path]):
    """A folder that a command writes to, and makes if it is not there."""

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
    """Return the command, or each command of a group, with its outputs checked before it starts and its failures told last."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_outputs(each)
    elif command.callback is not None:
        command.callback = _around(command.callback)
    return command


def read_too(flag: str, path: Path) -> None:
    """Remember a file that the command in progress has read and does not hand on, so that no output takes its place."""
    click.get_current_context().meta.setdefault(_READ, []).append((flag, path))


@contextmanager
def may_fail() -> Iterator[None]:
    """Go on where a file cannot be written; the command ends with the line that says so, once all else is done."""
    try:
        yield
    except WriteError as error:
        _failures().append(str(error))


def print_text(text: str, *, nl: bool = True) -> None:
    """Print an answer on stdout; where stdout does not take it, files are written all the same.

    Nothing is said where nobody reads any more, as after `| head`.
    """
    try:
        click.echo(text, nl=nl)
    except OSError as error:
        _failures().append("" if isinstance(error, BrokenPipeError) else f"stdout: cannot print: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which takes what is left in the buffer


def _failures() -> list[str]:
    """The lines of what could not be written so far; an empty one has nothing to say."""
    found: list[str] = click.get_current_context().meta.setdefault(_FAILURES, [])
    return found


def _around(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def called(*given: Any, **options: Any) -> Any:
        _check(click.get_current_context())
        try:
            result = callback(*given, **options)
        except EmuError as error:
            if lines := [line for line in _failures() if line]:
                error.args = ("; ".join((str(error), *lines)),)
            raise
        return _ended(result) if _failures() else result

    return called


def _ended(result: object) -> int:
    """Return the exit code of a command that could not write all: its own if it has one, as that of a script.

    Raises:
        WriteError: naming what it could not write.
    """
    code = result if isinstance(result, int) and result else WriteError.exit_code
    if told := "; ".join(filter(None, _failures())):
        error = WriteError(told)
        error.exit_code = code
        raise error
    return code


def _check(ctx: click.Context) -> None:
    """Refuse outputs that cannot be written, and those that name one file twice, or a file that the command reads.

    Raises:
        InputError: naming the option.
    """
    taken = {_place(path): flag for flag, path in _given(ctx)}
    for param in ctx.command.params:
        path = ctx.params.get(param.name or "")
        if isinstance(param.type, OutputFile | OutputFolder) and path is not None:
            flag = _flag(param)
            param.type.check(flag, path)
            if not is_stream(path) and taken.setdefault(_place(path), flag) != flag:
                raise InputError(f"{flag}: cannot write {str(path)!r}: {taken[_place(path)]} names it, too; name another file")


def _given(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """The files that the command reads, by option; a word may name one, such as a topology."""
    yield from ctx.meta.get(_READ, ())
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if not isinstance(param.type, OutputFile | OutputFolder | click.types.UnprocessedParamType):
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str | Path) and os.path.isfile(each):  # noqa: PTH113  a word may be no path at all
                    yield _flag(param), Path(each)


def _place(path: Path) -> str:
    return os.path.realpath(path)


def _flag(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
