"""What DTensor works out again and again, or for each rank, is worked out once for all ranks of a process.

Its own caches tell meshes apart, and meshes of two ranks are never equal; what is kept here knows no mesh. And what only a
profile shows is not made where none is taken.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from torch._C._autograd import _profiler_enabled
from torch._guards import detect_fake_mode
from torch.autograd.profiler import record_function
from torch.nn import functional

from emu.cluster.own.device import replaced

_GIVEN = frozenset({"mesh", "placements", "tensor_meta"})  # of a DTensorSpec
_META = "_propagate_tensor_meta_non_cached"
_FLAG = "_propagate_use_strided_shard_flag"


class _Few(NamedTuple):
    """An operator's inputs as far as a flag of their placements goes: of many weights, those that differ in these."""

    args_spec: tuple[Any, ...]


@contextmanager
def bare_tensors() -> Iterator[None]:
    """A DTensor is made without a guard against `torch.compile` and `torch.export`, which here costs more than making it.

    A product with its weights is one step of autograd. And what follows from placements, and from the shapes that an operator
    is given, is known from before.
    """
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:  # a script may load it later: it is slower then
        yield
        return
    specs = sys.modules["torch.distributed.tensor._dtensor_spec"]
    rules = sys.modules["torch.distributed.tensor._sharding_prop"]
    propagator = rules.ShardingPropagator
    linear = importlib.import_module("emu.cluster.threads.linear")  # not above: it loads DTensor
    with ExitStack() as stack:
        stack.enter_context(replaced(functional, "linear", linear.products(functional.linear)))
        stack.enter_context(replaced(tensor.DTensor, "__init__", lambda *_, **__: None))
        stack.enter_context(replaced(specs.DTensorSpec, "__init__", _specify(specs)))
        stack.enter_context(replaced(rules, _FLAG, _flagged(getattr(rules, _FLAG))))
        stack.enter_context(replaced(propagator, _META, _described(getattr(propagator, _META), specs.DTensorSpec)))
        yield


@contextmanager
def bare_labels() -> Iterator[None]:
    """Of `record_function`, in which FSDP2 does each thing: two operators for each, which are dispatched as others are."""
    enter: Callable[..., Any] = record_function.__enter__
    leave: Callable[..., Any] = record_function.__exit__

    def entered(label: Any) -> Any:
        return enter(label) if _profiler_enabled() else label

    def left(label: Any, *error: Any) -> None:
        if label.record is not None:
            leave(label, *error)

    with replaced(record_function, "__enter__", entered), replaced(record_function, "__exit__", left):
        yield


def _specify(specs: Any) -> Callable[..., None]:
    """What makes a `DTensorSpec` as PyTorch does; of placements that were there before, as then."""
    init, metas = specs.DTensorSpec.__init__, (specs.TensorMeta, type(None))
    known: dict[object, dict[str, Any]] = {}  # what follows from placements

    def specify(self: Any, mesh: Any, placements: Any, tensor_meta: Any = None, *order: Any, **told: Any) -> None:
        if order or type(placements) is not tuple or type(tensor_meta) not in metas or told.get("shard_order") is not None:
            init(self, mesh, placements, tensor_meta, *order, **told)
            return
        key = (placements, *map(type, placements), told.get("use_strided_shard_as_shard_order"))
        if key not in known:
            init(self, mesh, placements, tensor_meta, **told)
            known[key] = {name: self.__dict__[name] for name in self.__dict__.keys() - _GIVEN}
        self.__dict__.update(known[key], mesh=mesh, placements=placements, tensor_meta=tensor_meta)

    return specify


def _flagged(flag: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """What looks at all inputs for each of them: of an optimizer's some thousand weights and moments, a million times."""
    last: list[tuple[Any, _Few]] = []  # the operator that was asked about last

    def flagged(strategy: Any, schema: Any) -> None:
        if not last or last[0][0] is not schema:
            specs = {(spec.placements, spec.use_strided_shard_as_shard_order): spec for spec in schema.args_spec}
            last[:] = [(schema, _Few((*specs.values(),)))]
        flag(strategy, last[0][1])

    return flagged


def _described(describe: Callable[[Any, Any], Any], spec: type) -> Callable[[Any, Any], Any]:
    """What tells the shapes that come out of an operator: PyTorch runs it on tensors without data, which takes milliseconds."""
    known: dict[object, Any] = {}

    def whole(value: Any) -> object:
        """Of an argument all that the shapes depend on; 1, 1.0 and True are not the same."""
        if isinstance(value, spec):
            return value.tensor_meta, value.mesh.device_type  # type: ignore[attr-defined]
        if isinstance(value, (list, tuple)):
            return (type(value), *map(whole, value))
        return type(value), value

    def described(self: Any, schema: Any) -> Any:
        if detect_fake_mode() is not None:  # whose tensors may have sizes that are not known
            return describe(self, schema)
        key = (schema.op, *map(whole, schema.args_schema), *((name, whole(v)) for name, v in schema.kwargs_schema.items()))
        try:
            if key not in known:
                known[key] = describe(self, schema)
        except TypeError:  # an argument without a hash
            return describe(self, schema)
        return known[key]

    return described
