"""The options of a command as its question describes them: name, type, default and help are those of the argument.

The docstring of the question says each thing once. On the help page, an example after "such as" is the form of the value, what
follows "None:" is the default, and the name of another argument is its flag.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from launch.cli.options.files import INPUT
from launch.front.inputs import Words

F = TypeVar("F", bound=Callable[..., Any])
# What an option of a type is; others take text.
_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"is_flag": True},
    int: {"type": int},
    int | None: {"type": int},
    float: {"type": float},
    str | Path | None: {"type": INPUT},
}
_SEVERAL: dict[Any, dict[str, Any]] = {Words: {}, int | Sequence[int]: {"type": int}}  # options that may be repeated
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_EXAMPLE = re.compile(r",(?: as a number or| as a share or| in seconds or)? such as `([^`]+)`")
_DEFAULT = re.compile(r"; (?:None|False|empty): (.*)$")


def options(*of: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, in the order of the help page."""

    def add(command: F) -> F:
        return reduce(lambda made, option: cast("F", option(made)), reversed(of), command)

    return add


class QuestionOptions:
    """The options of a command, made of the arguments of its question."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._taken = inspect.signature(ask).parameters
        arguments = (inspect.getdoc(ask) or "").partition("\nArgs:\n")[2]
        self._told = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}

    def __call__(self, *names: str, **more: Any) -> Callable[[F], F]:
        """Return a decorator that adds the options of some arguments to a command.

        Args:
            names: The arguments; each may have a flag behind it, as in `begin -b`.
            more: What click takes, where it differs from what the arguments say.
        """
        return options(*(self._option(*name.split(), **more) for name in names))

    def _option(self, name: str, *flags: str, **more: Any) -> Callable[[Any], Any]:
        """Return the decorator of one option; a long flag takes the place of the argument's own."""
        long = [name] if any(flag.startswith("--") for flag in flags) else [_flag(name)]
        return click.option(*flags, *long, **{**self._described(name), **more})

    def _described(self, name: str) -> dict[str, Any]:
        """Return the settings, such as type and default, with which click makes the option of an argument."""
        argument, told = self._taken[name], self._told.get(name, "").removesuffix(".")
        example, said = _EXAMPLE.search(told), _DEFAULT.sub(r". [default: \1]", _EXAMPLE.sub("", told))
        said = re.sub(r"`(\w+)`", lambda word: _flag(word[1]) if word[1] in self._taken else word[0], said)
        words = said.replace("; or several", "; repeat it") + "." * (not said.endswith("]"))
        return {**_value_of(argument), **({"metavar": example[1]} if example else {}), "help": words}


def _value_of(argument: inspect.Parameter) -> dict[str, Any]:
    """Return the type and the default that click's option for an argument has."""
    of, default = argument.annotation, argument.default
    kind = _KINDS.get(of, {})
    if default == () and of in _SEVERAL:
        return {**_SEVERAL[of], "multiple": True}
    if default is argument.empty:
        return {**kind, "required": True}
    if not kind and isinstance(default, int | float):  # an option of text, which may have a unit
        default = f"{default:g}"
    shown = isinstance(default, int | float | str) and default is not False and default != ""
    return {**kind, "default": "" if default == () else default, "show_default": shown}


def _flag(name: str) -> str:
    """Return the flag of an argument."""
    return f"--{name.replace('_', '-')}"
