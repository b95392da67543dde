"""`--config FILE.toml` of every command: a file that holds any of its options, so that a scenario can be kept and sent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.description.values import load_toml
from launch.cli.options.outputs import read_too

_NAME = "config"
_HELP = "Take the options that are not given here from this file, such as `global-batch = 64`."


def with_config(command: click.Command) -> click.Command:
    """The command, or each command of a group, with the option; once, however often it is asked for."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_config(each)
    elif all(param.name != _NAME for param in command.params):
        path = click.Path(path_type=Path)
        kind: dict[str, Any] = {"type": path, "is_eager": True, "expose_value": False, "callback": _take}
        command.params.append(click.Option([f"--{_NAME}"], metavar="FILE.toml", help=_HELP, **kind))
    return command


def _take(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """What the file says is the default of what the command line does not say."""
    if path is not None:
        read_too(f"--{_NAME}", path)
        options = {name: each for each in ctx.command.params for name in _long(each)}
        found = _read(path)
        for name in found:
            if name not in options:
                raise _of(path, unknown(f"option of `{ctx.command_path}`", name, options))
        ctx.default_map = {str(options[name].name): _value(path, name, options[name], found[name]) for name in found}


def _long(param: click.Parameter) -> list[str]:
    """What a file calls an option: what follows its `--`."""
    own = isinstance(param, click.Option) and param.name != _NAME
    return [word.removeprefix("--") for word in param.opts if word.startswith("--")] if own else []


def _read(path: Path) -> Mapping[str, Any]:
    found = load_toml(path, "--config", str(path))
    return {name.replace("_", "-"): value for name, value in found.items()}


def _value(path: Path, name: str, param: click.Parameter, value: Any) -> Any:
    """What click converts as it converts words: as many of them as the option takes."""
    several = param.multiple or param.nargs != 1
    words = value if several and isinstance(value, list) else [value]
    flag = isinstance(param, click.Option) and param.is_flag
    if not all(isinstance(word, bool) if flag else _is_word(word) for word in words):
        what = "true or false" if flag else "words or numbers" if several else "a word or a number"
        raise _of(path, must_be("--config", name, what, value))
    told = [word if isinstance(word, bool) else str(word) for word in words]  # so that no number is cut to a whole one
    return told if several else told[0]


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _of(path: Path, error: InputError) -> InputError:
    return InputError(f"{path}: {error}")
