"""PyTorch's mode for fake tensors, which remembers what an operator makes of such inputs, with keys that take less time.

A step of a large model has some ten thousand operators, few of them new: most of its time went into what they are known by.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode


class _Converter(FakeTensorConverter):
    """Without a table of what operators have made: a weight that stands in one cannot be put on another device."""

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: torch.Tensor, device: torch.device, **how: Any) -> FakeTensor:  # type: ignore[override]
        return FakeTensor(fake_mode, t, device, **how)


class Shapes(FakeTensorMode):
    """Real tensors may be among the inputs."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # type: ignore[no-untyped-call]
        self.fake_tensor_converter = _Converter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """As of `Count`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.dispatch(func, types, args, kwargs or {})

    def _prep_args_for_hash(self, result: list[object], args: Any, state: Any, id_hashed_objects: list[object]) -> None:
        """Add to a key what tells inputs apart: of a plain fake tensor all that it has, of others what PyTorch takes."""
        others: list[object] = []
        for arg in args.items() if isinstance(args, dict) else args:
            if type(arg) is FakeTensor and _is_plain(arg, self):
                others.append(_all_of(arg))
            else:
                super()._prep_args_for_hash(others, (arg,), state, id_hashed_objects)
        result.append((type(args), *others))


def _is_plain(tensor: FakeTensor, mode: FakeTensorMode) -> bool:
    known = tensor.fake_mode is mode and tensor.constant is None
    return known and tensor.layout == torch.strided and not tensor._has_symbolic_sizes_strides


def _all_of(tensor: FakeTensor) -> tuple[object, ...]:
    return (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.untyped_storage().nbytes(),
        tensor.requires_grad,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.is_inference(),
        tensor.is_quantized,
        tensor.device,
    )
