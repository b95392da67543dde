"""PyTorch's mode for fake tensors, with a cache of the results of operators for equal inputs.

A step of a large model has some ten thousand operators, few of them new. PyTorch's mode has a cache, too, but not for FSDP2's
operators, nor for operators that return lists of tensors; and most of a step's time was spent on its keys and on making
tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._library.utils import is_builtin
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_native: Any = torch._C
_UNREPLACED: Any = _native._VariableFunctions
_CHANGES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_REMEMBERED = ("fsdp",)  # namespaces of operators that are cached beside PyTorch's own


class _TensorForm(NamedTuple):
    """The shape, strides and dtype of a tensor that an operator returns, from which an equal fake tensor can be made."""

    lies_in: int | None  # the number of the input whose storage it shares, or None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device


_Recipe = tuple[
    type | None, Sequence[_TensorForm | int | None]
]  # list, tuple, or None for one tensor; an input is given by its number
_KNOWN: dict[object, _Recipe | None] = {}  # by operator and inputs, for all modes; forked processes inherit it


class CachedFakeMode(FakeTensorMode):
    """A fake mode with a cache; real tensors may be among the inputs."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # type: ignore[no-untyped-call]
        # Without a table of results: a weight in such a table could not move to another device.
        converter: Any = self.fake_tensor_converter
        converter.from_meta_and_device = FakeTensor
        self._fields: dict[torch.device, dict[str, Any]] = {}  # the attributes of every tensor of this mode, by device
        unsafe = self._allow_unsafe_data_ptr_access
        self._guard = _native._set_warn_deprecated_on_mutable_data_ptr if unsafe else _native._set_throw_on_mutable_data_ptr

    def __deepcopy__(self, memo: object) -> "CachedFakeMode":
        """Return this mode itself: the copy of a tensor, such as the weight of a copied layer, is of the same mode."""
        return self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: calls need no guard against torch.compile, as in `OperatorCounter`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, given = kwargs or {}, list[FakeTensor]()
        try:
            key = self._key(func, args, kwargs, given)
            known = _KNOWN.get(key)
        except TypeError:  # an argument has no hash, or is of a kind for which nothing is cached
            return self.dispatch(func, types, args, kwargs)
        if known is not None:
            return self._make_again(known, given)
        out = self.dispatch(func, types, args, kwargs)
        if key not in _KNOWN:
            self._remember(func, args, kwargs, key, given, out)
        return out

    def _key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: list[FakeTensor]) -> object:
        """Return the cache key of an operator and its inputs; the tensors among the inputs are added to `given`."""
        asked = [self._key_of(value, given) for value in args]
        named = [(name, self._key_of(value, given)) for name, value in kwargs.items()]
        shared = _shared_storage(given) if len(given) > 1 else ()
        return func, *asked, *named, shared, torch.get_default_dtype(), torch.is_inference_mode_enabled()

    def _key_of(self, value: Any, given: list[FakeTensor]) -> object:
        kind = type(value)
        if kind is FakeTensor:
            if not _is_plain(value, self):
                raise TypeError("nothing is cached")
            given.append(value)
            return _all_of(value)
        if kind is list or kind is tuple:
            return (kind, *[self._key_of(each, given) for each in value])
        if isinstance(value, (Tensor, torch.Generator, torch.SymInt, torch.SymFloat, torch.SymBool, dict)):
            raise TypeError("nothing is cached")
        return kind, value  # 1, 1.0 and True differ

    def _remember(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: object, given: list[FakeTensor], out: object
    ) -> None:
        """Store the result of an operator, if equal inputs always give it, and if it changes no input except in content."""
        try:
            same = self._key(func, args, kwargs, []) == key
            _KNOWN[key] = _recipe(out, given, self) if same and _is_steady(func) else None
        except TypeError:
            _KNOWN[key] = None

    def _make_again(self, known: Any, given: Sequence[FakeTensor]) -> Any:
        kind, several = known
        made = [
            self._make(each, given) if type(each) is _TensorForm else each if each is None else given[each] for each in several
        ]
        return made[0] if kind is None else kind(made)

    def _make(self, made: _TensorForm, given: Sequence[FakeTensor]) -> FakeTensor:
        """Return a fake tensor of this form, as PyTorch's own mode would make it."""
        with _native._DisableTorchDispatch():
            empty = _UNREPLACED.empty_strided(made.shape, made.strides, dtype=made.dtype, device="meta")
            if made.lies_in is not None:
                empty.set_(given[made.lies_in].untyped_storage(), made.offset, made.shape, made.strides)
        if made.device not in self._fields:
            self._fields[made.device] = dict(vars(FakeTensor(self, empty, made.device)))
        tensor: FakeTensor = _native.TensorBase._make_subclass(
            FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=made.device
        )
        self._guard(tensor)
        tensor.__dict__.update(self._fields[made.device])
        return tensor


def _is_steady(func: Any) -> bool:
    """Return True if an operator gives equal results for equal shapes."""
    if not isinstance(func, torch._ops.OpOverload) or any(tag in func.tags for tag in _CHANGES):
        return False
    return is_builtin(func) or func.namespace in _REMEMBERED


def _recipe(out: object, given: Sequence[FakeTensor], mode: FakeTensorMode) -> _Recipe:
    """Return a description from which the result of an operator can be made again.

    Raises:
        TypeError: A part of the result cannot be made again.
    """
    kind = type(out) if type(out) in (list, tuple) else None
    several: list[Any] = [out] if kind is None else [*out]  # type: ignore[misc]
    forms = [each if each is None else _form_of(each, given, mode) for each in several]
    fresh = [
        t.untyped_storage()._cdata
        for t, of in zip(several, forms, strict=True)
        if type(of) is _TensorForm and of.lies_in is None
    ]
    if len(fresh) > len({*fresh}):
        raise TypeError("nothing is cached")
    return kind, forms


def _form_of(out: object, given: Sequence[FakeTensor], mode: FakeTensorMode) -> int | _TensorForm:
    """Return from what an operator's result can be made again: the number of the input that it is, or its form.

    The form is that of a new tensor, or of a view of an input.

    Raises:
        TypeError: The result cannot be made again from a form.
    """
    if type(out) is not FakeTensor or not _is_plain(out, mode) or out.is_conj() or out.is_neg() or out.requires_grad:
        raise TypeError("nothing is cached")
    for i, tensor in enumerate(given):
        if tensor is out:
            return i
    storage = out.untyped_storage()
    lies_in = next((i for i, tensor in enumerate(given) if tensor.untyped_storage()._cdata == storage._cdata), None)
    reach = sum((size - 1) * step for size, step in zip(out.shape, out.stride(), strict=True)) + 1 if out.numel() else 0
    if lies_in is None and (out.storage_offset() or storage.nbytes() != reach * out.itemsize):
        raise TypeError("nothing is cached")  # it is a part of another tensor
    return _TensorForm(lies_in, tuple(out.shape), out.stride(), int(out.storage_offset()), out.dtype, out.device)


def _shared_storage(given: Sequence[FakeTensor]) -> tuple[int, ...]:
    """Return, for each tensor, the number of the first tensor with the same storage."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(tensor.untyped_storage()._cdata, i) for i, tensor in enumerate(given)])


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
        tensor.fake_device,
    )
