"""A request as a profile states it: operation, elements, dtype, root and group.

PyTorch writes them to the kernel of NCCL and to `record_param_comms` since version 2.3. Older profiles, and those of gloo, have
the operator that asked (`c10d::allreduce_`), with the shapes of its tensors where the profiler was told to keep shapes.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from emu.collective.operation import GATHERING, ROOTED, ROUTED
from emu.dtypes import DTYPES
from emu.errors import BareError, rank_list
from emu.trace.formats.kineto.event_arguments import whole
from emu.trace.formats.rank_group import MOST_RANKS, RankGroup, told_ranks, unnumbered

Args = Mapping[str, Any]
_NONE: Args = {}
NAMED = "Collective name"  # the argument that names the operation
OPERATION = "Emu operation"  # the argument that names an operation for which PyTorch has no name, in profiles of Emu
RANK = "Rank"  # the argument with the group rank of the root, or of the peer; of other calls the rank itself
PEERS = {
    "send": "Dst Rank",
    "recv": "Src Rank",
}  # the arguments with the peer's rank in the job, of each operation of two ranks
MESSAGES = tuple(PEERS)
UNTOLD = -1  # the peer of a message that does not say it
BARRIER = "barrier"  # in the names of calls that sum one element, which their arguments do not count

# The names of NCCL's calls in PyTorch, without underscores.
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "barrier": "all_reduce",  # of one element
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgathersingle": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "reducescattersingle": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
}
_BY_RESULT = ("reduce_scatter", "scatter")  # operations whose size is that of all ranks' outputs
# The places of an operator's arguments: its input, output, root (or peer), tag, and split sizes of the input; -1: none.
PLACES = {
    "all_reduce": (0, 0, -1, -1, -1),
    "broadcast": (0, 0, 2, -1, -1),
    "reduce": (0, 0, 3, -1, -1),
    "all_gather": (1, 0, -1, -1, -1),
    "reduce_scatter": (1, 0, -1, -1, -1),
    "all_to_all": (1, 0, -1, -1, 4),
    "gather": (1, 0, 3, -1, -1),
    "scatter": (1, 0, 3, -1, -1),
    "send": (0, -1, 2, 3, -1),
    "recv": (-1, 0, 2, 3, -1),
}
# The names that PyTorch has for dtypes in profiles, in lower case and without the namespace; others are as torch has them.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "char": "int8",
    "signed char": "int8",
    "byte": "uint8",
    "unsigned char": "uint8",
}


class ProfiledRequest(NamedTuple):
    """One request of a rank, as its profile states it: the operation, its elements, and the group.

    `label` and `name` are PyTorch's description and name of the group; `ranks` is empty if the profile does not have them.
    """

    operation: str
    elements: int  # elements of the largest buffer of any rank, as far as this rank knows
    dtype: str
    root: int  # a group rank: the root, or the peer of a message; UNTOLD: the profile does not say the peer
    tag: int
    splits: tuple[
        int, ...
    ]  # elements of each block that the rank gives; (): the profile does not say, or the size is cut evenly
    ranks: tuple[int, ...]  # ranks of the group; (): the profile does not say
    label: str  # PyTorch's description of the group, with a number behind it where groups of other names are equal
    name: str = ""  # PyTorch's name of the group; "": the profile does not say
    size: int = 0  # the number of its ranks that the profile states; 0: none
    cut: bool = False  # whether PyTorch wrote only the first of the split sizes; the others are taken to be equal

    @property
    def group(self) -> RankGroup:
        """The ranks and the description of its group."""
        return RankGroup(self.ranks, self.label)

    @property
    def is_message(self) -> bool:
        """True if the request is a message from one rank to another."""
        return self.operation in MESSAGES

    @property
    def size_bytes(self) -> int:
        """The bytes of the elements of the request, in its dtype."""
        return self.elements * DTYPES[self.dtype]


_LABELS = {"default_pg": "world", "undefined": ""}


def axis_of(label: str) -> str:
    """Return the name of an axis from PyTorch's description of a group: the dimension of a mesh, or `world` for all ranks."""
    told = unnumbered(label)
    return _LABELS.get(told, told.removeprefix("mesh_"))


def axis_label(axis: str) -> str:
    """Return PyTorch's description of a group whose axis this is: `mesh_tp` for tp, and `default_pg` for all ranks."""
    return next((label for label, of in _LABELS.items() if of == axis), f"mesh_{axis}")


def operation_of(name: str) -> str:
    """Return the operation from the name of a collective in PyTorch, or of its operator; "": the name is of no collective."""
    return _OPERATIONS.get(name.removeprefix("c10d::").replace("_", "").lower(), "")


def dtype_of(name: str) -> str:
    """Return torch's name of a dtype, such as `bfloat16`, from its name in a profile, such as `c10::BFloat16`.

    Raises:
        BareError: the dtype is unknown.
    """
    short = name.lower().removeprefix("c10::")
    found = _DTYPES.get(short, short)
    if found not in DTYPES:
        raise BareError(f"has an unknown dtype {name!r}")
    return found


def request_by_arguments(args: Args, groups: Mapping[str, tuple[int, ...]], around: Args = _NONE) -> ProfiledRequest:
    """Return the request that the arguments of NCCL's kernel, or of `record_param_comms`, tell of.

    Args:
        args: The arguments.
        groups: The ranks of each process group, by name.
        around: The arguments of the operator of c10d that made the call.

    Raises:
        BareError: the operation or the dtype is unknown, or a size is missing.
    """
    name = str(args.get(NAMED, ""))
    operation = str(args[OPERATION]) if args.get(OPERATION) in ROUTED else operation_of(name)
    if not operation:
        raise BareError(f"has an unknown collective {args.get(NAMED)!r}")
    if "In msg nelems" not in args or "dtype" not in args:
        raise BareError("has no 'In msg nelems' and 'dtype'")
    ranks = _ranks(args, groups)
    given, made = whole(args, "In msg nelems"), whole(args, "Out msg nelems", 0)
    size = whole(args, "Group size", 0, below=MOST_RANKS)
    told = str(args.get("In split size", "")) if operation == "all_to_all" else ""
    rows, cut = _every_row(told, around, size or len(ranks))
    elements = 1 if BARRIER in name else _elements(operation, given, made, size or len(ranks))
    return ProfiledRequest(
        operation, elements, dtype_of(str(args["dtype"])), _root(operation, args, ranks), 0, _splits(rows, given),
        ranks, str(args.get("Process Group Description", "")), str(args.get("Process Group Name", "")), size, cut,
    )  # fmt: skip


def _ranks(args: Args, groups: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ranks of the group; PyTorch writes only the first 30 of a large group."""
    name, told = str(args.get("Process Group Name", "")), str(args.get("Process Group Ranks", ""))
    if name in groups:
        return groups[name]
    if told and "..." not in told:
        return _checked(_numbers(told))
    keys = "Global rank start", "Global rank stride", "Group size"
    first, stride, size = (whole(args, key, -1, -1, MOST_RANKS) for key in keys)
    return _checked(range(first, first + stride * size, stride)) if first >= 0 and stride > 0 and size > 0 else ()


def _root(operation: str, args: Args, ranks: Sequence[int]) -> int:
    """Return the root of a request, or its peer, as a rank of its group; `UNTOLD` if a message does not say its peer.

    Args:
        operation: The operation.
        args: The arguments.
        ranks: The ranks of the group; (): unknown, and taken to be all ranks.

    Raises:
        BareError: the peer is not in the group.
    """
    if operation in ROOTED:
        return whole(args, RANK, 0)
    if operation not in PEERS:
        return 0
    if PEERS[operation] not in args:
        return whole(args, RANK, UNTOLD, UNTOLD)
    peer = whole(args, PEERS[operation])
    if ranks and peer not in ranks:
        what = f"must have a rank of its group ({rank_list(ranks)}) as {PEERS[operation]!r}"
        raise BareError(f"{what}, got {peer}; profile again")
    return ranks.index(peer) if ranks else peer


def _checked(ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks of a group.

    Raises:
        BareError: they are no different ranks of a job.
    """
    try:
        return told_ranks(tuple(ranks))
    except ValueError as error:
        raise BareError(str(error)) from None


def _numbers(text: object) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", str(text))))


def _elements(operation: str, given: int, made: int, size: int) -> int:
    """Return the elements of the largest buffer of any rank.

    Args:
        operation: The operation.
        given: The elements that this rank gives.
        made: The elements that it gets.
        size: The number of ranks of the group.
    """
    if operation in GATHERING:
        return max(made, given * size)
    if operation in _BY_RESULT:
        return made * size if operation == "scatter" else max(given, made * size)
    return max(given, made)


def _every_row(told: str, around: Args, size: int) -> tuple[tuple[int, ...], bool]:
    """Return the rows of each block of an exchange, and whether some had to be assumed; then rows may be of another unit.

    Of a long list PyTorch writes the first 30 alone. The others are those of the operator, if it has all, else they are equal:
    they share what the first leave of its tensor's rows or, if these are unknown, are each as large as the mean of the first.

    Args:
        told: The list, as the profile has it.
        around: The arguments of the operator.
        size: The number of ranks of the group.
    """
    first = _numbers(told)
    if "..." not in told or not first or len(first) >= size:
        return first, False
    dims, values = (around.get(key) or () for key in ("Input Dims", "Concrete Inputs"))
    at, *_, split = PLACES["all_to_all"]
    every = _rows(dims, values, at, split)
    if len(every) == size:
        return every, False
    shape = (dims[at] if at < len(dims) else ()) or (0,)
    known, others = sum(first), size - len(first)
    has_rows = isinstance(shape[0], int) and shape[0] >= max(known, 1)
    unit, other = (others, shape[0] - known) if has_rows else (len(first), known or 1)
    return (*(each * unit for each in first), *[other] * others), True


def _splits(rows: Sequence[int], given: int) -> tuple[int, ...]:
    """Return the number of elements of each block that a rank sends, from the number of rows of each block.

    It is () if the profile has no rows.

    Args:
        rows: The rows of each block, as the profile has them.
        given: The elements of all blocks together.

    Raises:
        BareError: A block has a negative number of rows.
    """
    total = sum(rows)
    if rows and min(rows) < 0:
        raise BareError(f"must have split sizes of 0 or more, got {str(rows)[:40]}")
    return tuple(given * each // max(total, 1) for each in rows)


def request_by_operator(name: str, args: Args, dtype: str, size: int) -> ProfiledRequest:
    """Return the request of an operator of `c10d`, from the shapes of its tensors; the group stays unknown.

    Args:
        name: The operator.
        args: Its arguments.
        dtype: The name of the dtype where lists of tensors hide it; "": nothing else tells it.
        size: The number of ranks of the group.

    Raises:
        BareError: the operation is unknown, or the profile has no shapes.
    """
    operation = operation_of(name)
    if not operation:
        raise BareError("is an unknown operator")
    if BARRIER in name:
        return ProfiledRequest("all_reduce", 1, "float32", 0, 0, (), (), "")
    dims, types, values = (args.get(key) or () for key in ("Input Dims", "Input type", "Concrete Inputs"))
    if not any(dims):
        raise BareError("has no shapes; profile with record_shapes=True")
    *ends, _, _, split = PLACES[operation]
    given, made = (_count(dims, at) for at in ends)
    typed = [types[at] for at in ends if 0 <= at < len(types) and types[at] not in ("", "TensorList", "Scalar", "ScalarList")]
    rows = _rows(dims, values, ends[0], split)
    found = _elements(operation, given, made, size)
    name_of_dtype = dtype or (typed[0] if typed else "")
    root, tag = root_and_tag(operation, args)
    known = root if operation in MESSAGES else max(root, 0)
    return ProfiledRequest(operation, found, dtype_of(name_of_dtype), known, tag, _splits(rows, given), (), "")


def request_by_annotation(name: str, args: Args, size: int) -> ProfiledRequest:
    """Return the request of an annotation such as `nccl:all_reduce`, from the shape of its first tensor.

    Args:
        name: The annotation.
        args: Its arguments.
        size: The number of ranks of the group.

    Raises:
        BareError: the operation or the dtype is unknown.
    """
    operation = operation_of(name.partition(":")[2].partition(" ")[0])
    if not operation:
        raise BareError(f"is an unknown {name!r}")
    given, dtype = prod(args["Input Dims"][0]), dtype_of(str((args.get("Input type") or ("",))[0]))
    root = UNTOLD if operation in MESSAGES else 0
    return ProfiledRequest(operation, _elements(operation, given, 0, size), dtype, root, 0, (), (), "")


def root_and_tag(operation: str, args: Args) -> tuple[int, int]:
    """Return the root (or the peer) and the tag with which an operator was called; `UNTOLD` for a root that it does not say."""
    *_, root, tag, _ = PLACES[operation]
    values = args.get("Concrete Inputs") or ()
    return _value(values, root, UNTOLD if root >= 0 else 0), _value(values, tag, 0)


def _count(dims: Sequence[Any], at: int) -> int:
    """Return the number of elements of a tensor argument, or of all tensors of a list.

    Args:
        dims: The shapes of all arguments.
        at: The index of the argument.
    """
    if not 0 <= at < len(dims) or not dims[at]:
        return 0
    shape = dims[at]
    return sum(map(prod, shape)) if isinstance(shape[0], list | tuple) else prod(shape)


def _rows(dims: Sequence[Any], values: Sequence[str], at: int, split: int) -> tuple[int, ...]:
    """Return the rows of each block of the input: its split sizes, or the elements of each tensor of its list."""
    if split < 0:
        return ()
    shape = dims[at] if at < len(dims) else ()
    if shape and isinstance(shape[0], list | tuple):
        return tuple(map(prod, shape))
    return _numbers(values[split]) if split < len(values) else ()


def _value(values: Sequence[str], at: int, default: int) -> int:
    found = _numbers(values[at]) if 0 <= at < len(values) else ()
    return found[0] if found else default
