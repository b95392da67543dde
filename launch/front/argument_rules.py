"""The rules that a question declares of its arguments: which one needs another, which exclude each other, how large one may be.

They are checked for the command line and for Python, so that no argument is ignored in silence. An error names the option.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

from emu.errors import InputError, either, mendable, must_be
from emu.model.plan.plan import MOST_SEQUENCES

F = TypeVar("F", bound=Callable[..., Any])
_NEEDS, _EXCLUDES = "emu_needs", "emu_excludes"  # attributes of the function of a question
# The largest whole number of an argument of this name. More would take the memory of this machine, or days.
MOST: Mapping[str, int] = {
    **dict.fromkeys(("npus", "ranks", "max_ranks", "tp", "job", "servers", "npus_per_server", "npus_per_node"), 2**24),
    **dict.fromkeys(("steps", "top", "checkpoint_every", "jobs"), 10**7),
    "perturb": 10**4,
    "global_batch": MOST_SEQUENCES,
}


def needs(**others: str) -> Callable[[F], F]:
    """Return a decorator that declares which arguments of a question have an effect only with another one.

    Args:
        others: By an argument, the one that it needs, or several such as `mtbf|afr`, of which one is enough.
    """
    return _declaring(_NEEDS, others)


def excludes(**others: str) -> Callable[[F], F]:
    """Return a decorator that declares which arguments of a question have no effect where another one is given.

    Args:
        others: By an argument, the one beside which it must be left out, or several such as `rate|mtbf`.
            `cluster=fake` is the argument `cluster` with the value `fake`.
    """
    return _declaring(_EXCLUDES, others)


def _declaring(attribute: str, others: Mapping[str, str]) -> Callable[[F], F]:
    """Return a decorator that keeps a declaration as an attribute of a function."""

    def declare(ask: F) -> F:
        setattr(ask, attribute, {**getattr(ask, attribute, {}), **others})
        return ask

    return declare


def check_rules(ask: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Check the arguments of a question against what it declares.

    Raises:
        InputError: an argument needs another one or excludes it, or a whole number is too large.
    """
    where, taken = ask.__name__.replace("_", " "), signature(ask).parameters
    for name, value in given.items():
        _check_size(where, name, value)
    present = {name for name, value in given.items() if name in taken and _is_given(value, taken[name])}
    check_needs(where, getattr(ask, _NEEDS, {}), present)
    check_excludes(where, getattr(ask, _EXCLUDES, {}), {name: given[name] for name in present})


def check_excludes(where: str, declared: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """Check that no argument is given beside one with which it has no effect.

    Args:
        where: The name of the question or of the command.
        declared: By an argument, the ones beside which it must be left out, as `excludes` takes them.
        given: The arguments that are given, with their values.

    Raises:
        InputError: one is.
    """
    for name, others in declared.items():
        for other in others.split("|"):
            argument, _, word = other.partition("=")
            if name in given and argument in given and word in ("", given[argument]):
                beside = f"{_flag(argument)}{' ' * bool(word)}{word}"
                raise must_be(
                    where, _flag(name), f"left out where {beside} is given", str(given[name]), "it has no effect there"
                )


def check_needs(where: str, declared: Mapping[str, str], present: Iterable[str]) -> None:
    """Check that each argument that is given has the one that it needs.

    Args:
        where: The name of the question or of the command.
        declared: By an argument, what it needs, as `needs` takes it.
        present: The arguments that are given.

    Raises:
        InputError: one has not.
    """
    found = {*present}
    for name, others in declared.items():
        if name in found and not found & {*others.split("|")}:
            raise _needy(where, _flag(name), [_flag(other) for other in others.split("|")])


def _needy(where: str, flag: str, others: list[str]) -> InputError:
    """Return the error of an option without the one that it needs."""
    return mendable(f"{where}: {flag} needs {either(others)}", flag, flag, f"add {others[0]}, or leave {flag} out")


def _check_size(where: str, name: str, value: object) -> None:
    """Refuse a whole number, or one of several, that is above the largest of this argument."""
    most = MOST.get(name)
    if most is None:
        return
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, int) and each > most:
            raise must_be(where, _flag(name), f"at most {most:,}", each)


def _is_given(value: object, taken: Parameter) -> bool:
    """Return whether an argument has another value than its default, of which the command line may have the text."""
    if value is None or value is False or (isinstance(value, str | tuple | list) and not value):
        return False
    default = taken.default
    if isinstance(default, int | float) and isinstance(value, str):
        return value != f"{default:g}"
    return bool(value != default)


def _flag(name: str) -> str:
    """Return the option of an argument."""
    return f"--{name.replace('_', '-')}"
