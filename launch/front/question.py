"""The frame of a question: what is checked of its arguments, what is kept between calls, and how its errors speak."""

import difflib
import inspect
import re
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from emu.errors import InputError, must_be
from emu.registry import has_own
from emu.study.choice import algorithm_cache
from launch.shell import is_in_shell

P = ParamSpec("P")
T = TypeVar("T")
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
# What an argument of these types must be; others take names, files or objects, which are read one by one.
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (Integral, "a whole number"),
    int | None: (Integral | None, "a whole number"),
    float: (Real, "a number"),
    float | None: (Real | None, "a number"),
    str: (str, "text"),
    str | None: (str | None, "text"),
}


def question(answer: Callable[P, T]) -> Callable[P, T]:
    """Return a function of the front that checks its arguments, and keeps choices of algorithms between calls and processes.

    Nothing is kept where collectives, topologies or models of the user's own are filed: they may read files, whose changes no
    digest sees. An InputError names arguments as Python has them.
    """
    parameters = inspect.signature(answer).parameters

    @wraps(answer)
    def asked(*given: P.args, **named: P.kwargs) -> T:
        algorithm_cache.keep_in(None if has_own() else algorithm_cache.user_table())
        if is_in_shell():
            return answer(*given, **named)
        try:
            _check(answer.__name__, parameters, named)
            return answer(*given, **named)
        except InputError as error:
            raise _in_python(error) from None

    return asked


def _check(name: str, parameters: Any, named: dict[str, Any]) -> None:
    """Refuse an argument that is unknown or has an impossible type.

    Raises:
        InputError: naming the argument; of an unknown one, the nearest.
    """
    for key, value in named.items():
        if key not in parameters:
            near = difflib.get_close_matches(key, parameters, n=1)
            hint = f"did you mean {near[0]}?" if near else f"help(emu.{name}) lists the arguments"
            raise InputError(f"{name}: no argument is called {key!r}; {hint}")
        kind, what = _KINDS.get(parameters[key].annotation, (object, ""))
        if not isinstance(value, kind):
            raise must_be(name, key, what, value)


def _in_python(error: InputError) -> InputError:
    """Return the error with arguments as Python names them."""

    def argument(flag: re.Match[str]) -> str:
        return flag[1].replace("-", "_")

    plain = InputError(_FLAG.sub(argument, str(error)))
    plain.field = None if error.field is None else _FLAG.sub(argument, error.field)
    plain.value, plain.mend = error.value, _FLAG.sub(argument, error.mend)
    return plain
