"""The option `--config FILE.toml` of every command: a file with any of its options, so that a scenario can be kept and sent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.description.values import load_toml
from launch.cli.options.outputs import remember_input

_NAME = "config"
_HELP = "Take options that are not on the command line from this file, such as `global-batch = 64`."


def with_config(command: click.Command) -> click.Command:
    """Return the command, or the group with all its commands, with the option; a second call adds nothing."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_config(each)
    elif all(param.name != _NAME for param in command.params):
        path = click.Path(path_type=Path)
        kind: dict[str, Any] = {"type": path, "is_eager": True, "expose_value": False, "callback": _set_defaults}
        command.params.append(click.Option([f"--{_NAME}"], metavar="FILE.toml", help=_HELP, **kind))
    return command


def _set_defaults(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Make the options of the file the defaults of the command.

    Raises:
        InputError: the file has a key that is no option, or a value of another type.
    """
    if path is not None:
        remember_input(f"--{_NAME}", path)
        options = {name: each for each in ctx.command.params for name in _names_of(each)}
        found = _read(path)
        for name in found:
            if name not in options:
                raise _with_path(path, unknown(f"option of `{ctx.command_path}`", name, options))
        ctx.default_map = {str(options[name].name): _value(path, name, options[name], found[name]) for name in found}


def _names_of(param: click.Parameter) -> list[str]:
    """Return the names of an option in a file: its long flags without `--`."""
    own = isinstance(param, click.Option) and param.name != _NAME
    return [word.removeprefix("--") for word in param.opts if word.startswith("--")] if own else []


def _read(path: Path) -> Mapping[str, Any]:
    """Return the keys and values of a file, with `-` for `_` in keys."""
    found = load_toml(path, "--config", str(path))
    return {name.replace("_", "-"): value for name, value in found.items()}


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
    """Return the error with the path of the file before it."""
    return InputError(f"{path}: {error}")
