"""A number that a fake tensor holds: nobody knows it, so it can be printed and averaged, but nothing can hang on it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor

from emu.cluster.own.device import replaced


class UnknownError(Exception):
    """A program asks what such a number is, or for all numbers of a fake tensor."""


class Unknown:
    """In place of a `float`."""

    def __format__(self, spec: str) -> str:
        """A question mark, in whatever format."""
        return "?"

    def __repr__(self) -> str:
        return "?"

    def _again(self, *others: object) -> "Unknown":
        if any(isinstance(other, torch.Tensor) for other in others):
            raise UnknownError("a number of it")
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _again
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = _again

    def _refuse(self, *others: object) -> NoReturn:
        raise UnknownError("a number of it")

    __bool__ = __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class Items:
    """Lets `item` of a floating tensor give such a number where the tensor is fake, and nothing else that reads a tensor."""

    def __init__(self) -> None:
        self._asking = self._unknown = False

    def answer(self) -> float | None:
        """In place of what a fake tensor holds; None: it is not `item` that asks."""
        self._unknown = self._asking
        return float("nan") if self._asking else None

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Until the end."""
        original: Callable[[torch.Tensor], Any] = torch.Tensor.item

        def item(tensor: torch.Tensor) -> Any:
            self._asking, self._unknown = tensor.is_floating_point(), False
            try:
                value = original(tensor)
            finally:
                self._asking = False
            return Unknown() if self._unknown else value

        def array(tensor: torch.Tensor, **how: Any) -> Any:
            if isinstance(tensor, FakeTensor):
                raise UnknownError("Tensor.numpy")
            return as_array(tensor, **how)

        as_array: Callable[..., Any] = torch.Tensor.numpy
        with replaced(torch.Tensor, "item", item), replaced(torch.Tensor, "numpy", array):
            yield
