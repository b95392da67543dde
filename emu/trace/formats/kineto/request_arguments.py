"""The arguments of a kernel in a written profile: PyTorch's fields of a request for NCCL, the shape for others."""

from typing import Any

from emu.collective.operation import GATHERING, ROOTED, ROUTED
from emu.dtypes import DTYPES
from emu.trace.formats.kineto.profiled_request import NAMED, OPERATION, PEERS, PLACES, RANK, axis_label
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import timed_as, timed_bytes
from emu.trace.trace import Events, Group, Kind

KERNEL, BYTES = "Emu kernel", "Bytes moved"  # arguments of Emu's own
SIZES = ("batch", "m", "n", "k")
_NAMES = {  # of NCCL's calls in PyTorch, and of its kernels
    "all_reduce": ("allreduce", "AllReduce"),
    "broadcast": ("broadcast", "Broadcast"),
    "reduce": ("reduce", "Reduce"),
    "all_gather": ("_allgather_base", "AllGather"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter"),
    "all_to_all": ("all_to_allv", "SendRecv"),
    "gather": ("gather", "SendRecv"),
    "scatter": ("scatter", "SendRecv"),
    "send": ("send", "SendRecv"),
    "recv": ("recv", "SendRecv"),
}
_ASKED_AS = dict.fromkeys(ROUTED, "all_to_all")  # operations for which PyTorch has no name: all exchange blocks with all
_PARTS = ("reduce_scatter", "scatter")  # operations of which a rank gets a share
_DTYPES = {
    "float32": "Float",
    "bfloat16": "BFloat16",
    "float16": "Half",
    "float64": "Double",
    "int64": "Long",
    "int32": "Int",
    "int8": "Char",
    "uint8": "Byte",
}


def kernel_name(events: Events, row: int) -> str:
    """Return the name of an event's kernel; a request gets the name of NCCL's kernel."""
    asks = events.kind[row] in (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)
    return f"ncclDevKernel_{_NAMES[_operation_name(events, row)][1]}" if asks else events.name[row]


def request_arguments(events: Events, row: int, dtype: str, number: int, group: Group) -> dict[str, Any]:
    """Return the arguments that PyTorch's profiler writes to an NCCL kernel: operation, elements, dtype, group and ranks.

    Args:
        events: The events of a role.
        row: The row of the request.
        dtype: The dtype that float32 is timed as.
        number: The number of its group among all of the job.
        group: The group.
    """
    operation, size = _operation_name(events, row), len(group.ranks)
    own = {OPERATION: events.name[row]} if operation != events.name[row] else {}
    elements, ran = _elements(events, row)
    splits = events.split[events.split_start[row] : events.split_start[row + 1]].tolist()
    root = int(events.root[row])
    peer = {PEERS[operation]: group.ranks[root]} if operation in PEERS else {RANK: root} if operation in ROOTED else {}
    return {
        NAMED: _NAMES[operation][0],
        "In msg nelems": sum(splits) if splits else elements // (size if operation in GATHERING else 1),
        "Out msg nelems": elements // (size if operation in _PARTS else 1),
        "Group size": size,
        "dtype": _dtype_name(timed_as(ran, dtype)),
        "In split size": str(splits),
        "Out split size": "[]",
        "Process Group Name": str(number),
        "Process Group Description": axis_label(group.axis),
        "Process Group Ranks": str(list(group.ranks)),
        **peer,
        **own,
    }


def _operation_name(events: Events, row: int) -> str:
    """Return PyTorch's name of the operation of a request, such as `allreduce`."""
    return _ASKED_AS.get(events.name[row], events.name[row])


def _elements(events: Events, row: int) -> tuple[int, str]:
    """Return the elements of a request and their dtype; bytes if the elements do not make up its size."""
    count, size, dtype = int(events.count[row]), int(events.bytes[row]), events.dtype[row]
    return (count, dtype) if count * DTYPES.get(dtype, 0) == size else (size, "uint8")


def _dtype_name(dtype: str) -> str:
    return _DTYPES.get(dtype, dtype.capitalize())


def operator_arguments(events: Events, row: int) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments of the operator around the launch of a request.

    This operator says the root and the tag; None: both are 0.
    """
    *_, root, tag, _ = PLACES[_operation_name(events, row)]
    if not (events.root[row] or events.tag[row]) or root < 0:
        return None
    values = [""] * (1 + max(root, tag))
    values[root] = str(int(events.root[row]))
    if tag >= 0:
        values[tag] = str(int(events.tag[row]))
    return f"c10d::{_NAMES[_operation_name(events, row)][0]}_", {"Concrete Inputs": values}


def shape_arguments(events: Events, dtype: str) -> list[dict[str, Any]]:
    """Return, for each event, the arguments that state the work of a computation; empty for other events."""
    moved = timed_bytes(events, dtype).tolist()
    sizes = [getattr(events, name).tolist() for name in SIZES]
    kinds, kernels, flops, counts = (getattr(events, name).tolist() for name in ("kind", "kernel", "flops", "count"))
    return [
        {
            KERNEL: Kernel(kernels[row]).name.lower(),
            **{name: of[row] for name, of in zip(SIZES, sizes, strict=True) if of[row]},
            "FLOPs": flops[row],
            BYTES: moved[row],
            "Elements": counts[row],
            "dtype": timed_as(events.dtype[row], dtype),
        }
        if kinds[row] == Kind.COMPUTE
        else {}
        for row in range(len(events))
    ]
