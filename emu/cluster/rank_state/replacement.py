"""Replacements of attributes of modules and classes, which are made while ranks run and undone afterwards."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.jit import _builtins

_torchscript: Any = _builtins
Replacement = tuple[Any, str, object]  # the owner, the name, and the new value


@contextmanager
def replace_attributes(*replacements: Replacement) -> Iterator[None]:
    """Set other values for attributes, one after another, while the context lasts."""
    with ExitStack() as changes:
        for where, name, value in replacements:
            changes.enter_context(_replace_attribute(where, name, value))
        yield


@contextmanager
def _replace_attribute(where: Any, name: str, value: object) -> Iterator[None]:
    """Set another value for an attribute while the context lasts; TorchScript compiles the value as it would the original."""
    own, original = name in vars(where), getattr(where, name)
    builtins: dict[int, str] = _torchscript._get_builtin_table()  # the operator of a function, by the function's identity
    is_operator = id(original) in builtins and id(value) not in builtins
    if is_operator:
        builtins[id(value)] = builtins[id(original)]
    setattr(where, name, value)
    try:
        yield
    finally:
        if own:
            setattr(where, name, original)
        else:
            delattr(where, name)
        if is_operator:  # another function may have the value's identity later
            del builtins[id(value)]
