"""Torch's settings of how precise products of float32 are: two old ones, and a tree of new ones that show in them."""

from typing import Any

import torch

_native: Any = torch._C
_READ, _WRITE = _native._get_fp32_precision_getter, _native._set_fp32_precision_setter
# What has no value of its own has that of all of its backend, and that has the one of all backends.
_ALL = (("generic", "all"), ("cuda", "all"), ("mkldnn", "all"))
_OPERATIONS = tuple((backend, what) for backend in ("cuda", "mkldnn") for what in ("matmul", "conv", "rnn"))
_OLD = (
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_native._get_cudnn_allow_tf32, _native._set_cudnn_allow_tf32),
)
_State = tuple[tuple[Any, ...], tuple[str, ...]]


class Precision:
    """What `torch.backends` and `torch.set_float32_matmul_precision` say of float32; a rank starts with the process's.

    Torch cannot be told again that a convolution has TF32 by default: where a rank has changed that, it is said to the others.
    """

    def of(self, rank: int) -> _State:
        """What a rank starts with."""
        return self.save()

    def save(self) -> _State:
        """What the process has now: the old settings, None for one that torch refuses to tell, and the new ones."""
        return tuple(_told(read) for read, _ in _OLD), tuple(_READ(*place) for place in (*_ALL, *_OPERATIONS))

    def load(self, state: _State) -> None:
        """Give the process what was saved: old settings first, as they write new ones, and a whole before its parts."""
        if state == self.save():
            return
        old, new = state
        for (_, write), value in zip(_OLD, old, strict=True):
            if value is not None:
                write(value)
        for place, value in zip((*_ALL, *_OPERATIONS), new, strict=True):
            if _READ(*place) != value:
                _WRITE(*place, value)


def _told(read: Any) -> Any:
    try:
        return read()
    except RuntimeError:  # it disagrees with a new setting, which is the one that counts
        return None
