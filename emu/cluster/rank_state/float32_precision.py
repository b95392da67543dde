"""Torch's settings of the precision of float32 products: two old ones, and a tree of new ones that affect them."""

from typing import Any

import torch

_native: Any = torch._C
_READ, _WRITE = _native._get_fp32_precision_getter, _native._set_fp32_precision_setter
# A setting without a value has the value of its backend, and a backend without one that of all backends.
_ALL = (("generic", "all"), ("cuda", "all"), ("mkldnn", "all"))
_OPERATIONS = tuple((backend, what) for backend in ("cuda", "mkldnn") for what in ("matmul", "conv", "rnn"))
_OLD = (
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_native._get_cudnn_allow_tf32, _native._set_cudnn_allow_tf32),
)
_State = tuple[tuple[Any, ...], tuple[str, ...]]


class Float32Precision:
    """The settings of `torch.backends` and `torch.set_float32_matmul_precision` for float32; a rank starts with the process's.

    Torch cannot restore that a convolution has TF32 by default; if a rank changes this setting, the other ranks get it as set.
    """

    def of(self, rank: int) -> _State:
        """Return the settings of the process, with which a rank starts."""
        return self.save()

    def save(self) -> _State:
        """Return the present settings: the old ones (None if torch cannot tell one), and the new ones."""
        return tuple(_read_or_none(read) for read, _ in _OLD), tuple(_READ(*place) for place in (*_ALL, *_OPERATIONS))

    def load(self, state: _State) -> None:
        """Set the settings to saved ones.

        Old settings come first, because they write new ones, and a whole comes before its parts.
        """
        if state == self.save():
            return
        old, new = state
        for (_, write), value in zip(_OLD, old, strict=True):
            if value is not None:
                write(value)
        for place, value in zip((*_ALL, *_OPERATIONS), new, strict=True):
            if _READ(*place) != value:
                _WRITE(*place, value)


def _read_or_none(read: Any) -> Any:
    try:
        return read()
    except RuntimeError:  # the old setting contradicts a new one, and the new one counts
        return None
