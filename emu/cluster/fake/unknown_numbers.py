"""The number in a fake tensor: it is unknown, so it can be printed and averaged, but no branch can depend on it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor

from emu.cluster.rank_state.cpu_device import replace_attribute


class UnknownError(Exception):
    """The error that a program needs an unknown number, or the content of a fake tensor."""


class UnknownNumber:
    """An unknown number in place of a `float`."""

    def __format__(self, spec: str) -> str:
        """Return a question mark for every format."""
        return "?"

    def __repr__(self) -> str:
        return "?"

    def _propagate(self, *others: object) -> "UnknownNumber":
        if any(isinstance(other, torch.Tensor) for other in others):
            raise UnknownError("a number of it")
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _propagate
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = _propagate

    def _refuse(self, *others: object) -> NoReturn:
        raise UnknownError("a number of it")

    __bool__ = __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class ItemAnswers:
    """The switch that lets `item` of a fake floating-point tensor return an unknown number; other reads are errors."""

    def __init__(self) -> None:
        self._asking = self._unknown = False

    def answer(self) -> float | None:
        """Return a placeholder if `item` reads a fake tensor, and None if another function does."""
        self._unknown = self._asking
        return float("nan") if self._asking else None

    @contextmanager
    def replacements(self) -> Iterator[None]:
        """Replace `item` and `numpy` of tensors while the context lasts."""
        original: Callable[[torch.Tensor], Any] = torch.Tensor.item

        def item(tensor: torch.Tensor) -> Any:
            self._asking, self._unknown = tensor.is_floating_point(), False
            try:
                value = original(tensor)
            finally:
                self._asking = False
            return UnknownNumber() if self._unknown else value

        def array(tensor: torch.Tensor, **how: Any) -> Any:
            if isinstance(tensor, FakeTensor):
                raise UnknownError("Tensor.numpy")
            return as_array(tensor, **how)

        as_array: Callable[..., Any] = torch.Tensor.numpy
        with replace_attribute(torch.Tensor, "item", item), replace_attribute(torch.Tensor, "numpy", array):
            yield
