"""The files that a command reads and writes.

Every command has `--config FILE.toml`, a file with any of its options, so that a scenario can be kept and sent. All outputs are
checked before anything is computed. A file that cannot be written in the end is reported after all other output.
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

from emu.errors import EmuError, InputError, WriteError, either, must_be
from emu.files import check_file, check_folder, is_stream, named_path
from emu.registry import unknown
from emu.topology.description.values import load_toml
from launch.show.row_file import STDOUT

_FAILURES, _READ = "emu.failures", "emu.read"
_CONFIG = "config"
_CONFIG_HELP = "Take options that are not on the command line from this file, such as `global-batch = 64`."


class InputPath(click.Path):
    """The type of an option or an argument that names a file or a folder to read."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path.

        Raises:
            InputError: the word is empty.
        """
        named = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else "the path"
        return named_path(ctx.info_name or "" if ctx else "", named, value)


INPUT = InputPath()


class OutputFile(click.ParamType[Path]):
    """The type of an option that names a file or a folder to write.

    Args:
        endings: The endings that the name may have; none: any.
        rows: Whether the file is for rows, which may also go to stdout.
        is_folder: Whether it is a folder, which is made where it is missing.
    """

    def __init__(self, *endings: str, rows: bool = False, is_folder: bool = False) -> None:
        self.name, self.is_folder = "DIR" if is_folder else "FILE", is_folder
        self._endings, self._rows = endings, rows

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the value of the option as a path."""
        return Path(value)

    def check(self, flag: str, path: Path) -> None:
        """Refuse a path that cannot be written.

        Raises:
            InputError: as `check_file` or `check_folder`; or the name has another ending.
        """
        if self.is_folder:
            check_folder(flag, path)
        elif not (self._rows and path == STDOUT):
            check_file(flag, path)
            ending = path.suffix if self._rows else path.suffix.lower()
            if self._endings and ending not in self._endings and not is_stream(path):
                what = f"a name that ends in {either(self._endings)}{', or -' * self._rows}"
                raise must_be(flag, "FILE", what, str(path))


class TraceFile(OutputFile):
    """The type of an option that names a file for a trace, or a folder for a file of each rank."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "FILE|DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the file, which is in the folder if a folder is named."""
        formats = importlib.import_module("emu.trace.formats.trace_formats")  # only here, as it loads all formats
        path: Path = formats.output_path(value)
        return path

    def check(self, flag: str, path: Path) -> None:
        """Refuse a path that cannot be written; files of ranks get their folder.

        Raises:
            InputError: as `check_file`, or `check_folder` where there is a file of each rank.
        """
        formats = importlib.import_module("emu.trace.formats.trace_formats")
        if formats.is_by_rank(path):
            check_folder(flag, path.parent)
        else:
            super().check(flag, path)


FOLDER = OutputFile(is_folder=True)


@cache
def with_files(command: click.Command) -> click.Command:
    """Return the command (or group) with the option `--config`, and with checks of its output files.

    Outputs are checked before the command begins. Write errors are reported at its end.
    """
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_files(each)
    elif command.callback is not None:
        path = click.Path(path_type=Path)
        kind: dict[str, Any] = {"type": path, "is_eager": True, "expose_value": False, "callback": _set_defaults}
        command.params.append(click.Option([f"--{_CONFIG}"], metavar="FILE.toml", help=_CONFIG_HELP, **kind))
        command.callback = _with_checks(command.callback)
    return command


def remember_input(flag: str, path: Path) -> None:
    """Note a file that the running command has read, so that no output overwrites it."""
    click.get_current_context().meta.setdefault(_READ, []).append((flag, path))


@contextmanager
def may_fail() -> Iterator[None]:
    """Go on after the context if a write error ends it; the command reports the error at its end."""
    try:
        yield
    except WriteError as error:
        _failures().append(str(error))


def write_output(path: Path | None, write: Callable[[Path], object]) -> None:
    """Write the file or folder of an option, if it was given; the command reports a write error at its end."""
    if path is not None:
        with may_fail():
            write(path)


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
    """Return the list of write errors so far; an empty text is an error that is not reported."""
    found: list[str] = click.get_current_context().meta.setdefault(_FAILURES, [])
    return found


def _with_checks(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback of a command with checks of its output files before it, and a report of write errors after it."""

    @wraps(callback)
    def called(*given: Any, **options: Any) -> Any:
        _check(click.get_current_context())
        try:
            result = callback(*given, **options)
        except EmuError as error:
            if lines := [line for line in _failures() if line]:
                error.args = ("; ".join((str(error), *lines)),)
            raise
        return _report_failures(result) if _failures() else result

    return called


def _report_failures(result: object) -> int:
    """Report the files that a command could not write, and return its exit code.

    The code is that of the command if it is not 0, else that of a write error. It is returned only if there is nothing to
    report: stdout was a pipe that its reader has closed. Otherwise it is the code of the error that is raised.

    Args:
        result: The value that the command returned: its exit code, or something else.

    Raises:
        WriteError: A file could not be written; the error names all such files.
    """
    code = result if isinstance(result, int) and result else WriteError.exit_code
    if told := "; ".join(filter(None, _failures())):
        error = WriteError(told)
        error.exit_code = code
        raise error
    return code


def _check(ctx: click.Context) -> None:
    """Check that all outputs can be written, are different files, and are not also inputs.

    Raises:
        InputError: naming the option.
    """
    taken = {os.path.realpath(path): flag for flag, path in _input_files(ctx)}
    for param in ctx.command.params:
        path = ctx.params.get(param.name or "")
        if isinstance(param.type, OutputFile) and path is not None:
            flag = _flag(param)
            param.type.check(flag, path)
            if not is_stream(path) and taken.setdefault(os.path.realpath(path), flag) != flag:
                raise InputError(
                    f"{flag}: cannot write {str(path)!r}: {taken[os.path.realpath(path)]} names it, too; name another file"
                )


def _input_files(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Yield the option and the path of each file that the command reads; an option such as `--topology` may name one."""
    yield from ctx.meta.get(_READ, ())
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if not isinstance(param.type, OutputFile | click.types.UnprocessedParamType):
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str | Path) and os.path.isfile(each):  # noqa: PTH113  a value may be no path at all
                    yield _flag(param), Path(each)


def _flag(param: click.Parameter) -> str:
    """Return the name of an option or argument as the user writes it."""
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def _set_defaults(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Make the options of the file the defaults of the command.

    Raises:
        InputError: the file has a key that is no option, or a value of another type.
    """
    if path is not None:
        remember_input(f"--{_CONFIG}", path)
        options = {name: each for each in ctx.command.params for name in _names_of(each)}
        found = {name.replace("_", "-"): value for name, value in load_toml(path, "--config", str(path)).items()}
        for name in found:
            if name not in options:
                raise _with_path(path, unknown(f"option of `{ctx.command_path}`", name, options))
        of_file = {str(options[name].name): _value(path, name, options[name], found[name]) for name in found}
        ctx.default_map = {**(ctx.default_map or {}), **of_file}


def _names_of(param: click.Parameter) -> list[str]:
    """Return the names that an option has in a file of options: its long flags without `--`.

    The option that names this file has none.
    """
    own = isinstance(param, click.Option) and param.name != _CONFIG
    return [word.removeprefix("--") for word in param.opts if word.startswith("--")] if own else []


def _value(path: Path, name: str, param: click.Parameter, value: Any) -> Any:
    """Return the value of an option as click takes it from the command line.

    Raises:
        InputError: the value has another type than the option.
    """
    several = param.multiple or param.nargs != 1
    words = value if several and isinstance(value, list) else [value]
    flag = isinstance(param, click.Option) and param.is_flag
    if not all(isinstance(word, bool) if flag else _is_word(word) for word in words):
        what = "true or false" if flag else "words or numbers" if several else "a word or a number"
        raise _with_path(path, must_be("--config", name, what, value))
    told = [word if isinstance(word, bool) else str(word) for word in words]  # as text, so that click does not round a number
    return told if several else told[0]


def _is_word(value: Any) -> bool:
    """Return whether a value is a string or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _with_path(path: Path, error: InputError) -> InputError:
    """Return the error with the path of the file of options at the beginning of its line."""
    return InputError(f"{path}: {error}")
