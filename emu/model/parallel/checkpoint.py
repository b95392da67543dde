"""Checkpoints in a folder by PyTorch's distributed checkpoint (DCP), which any number of ranks can load again.

Each rank writes its parts of weights and of AdamW's states with their places in the whole, so a plan with other parts can read
them. DCP stores these places in a pickle; only DCP's own records are loaded from it, because a folder may come from anybody.
"""

import pickle
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from emu.errors import WriteError, must_be
from emu.model.parallel.data_parallel import parameter_states
from emu.model.parallel.mesh import local_tensor
from emu.model.parallel.parallel_model import ParallelModel

MOMENTS = ("exp_avg", "exp_avg_sq")  # the states of AdamW that have a parameter's shape; `step` is a number
_WHOLE = ".metadata"
_DCP = "torch.distributed.checkpoint"
_OF_TENSORS = {"TensorProperties", "TensorStorageMetadata", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"}
_RECORDS: Mapping[str, set[str]] = MappingProxyType(  # by module, the names in the pickle of a checkpoint that Emu has written
    {
        f"{_DCP}.metadata": {"Metadata", "MetadataIndex", "StorageMeta", *_OF_TENSORS},
        f"{_DCP}.filesystem": {"_StorageInfo"},
        "torch": {"Size", "float32"},
        "torch.serialization": {"_get_layout"},
        **{
            module: {"PosixPath", "WindowsPath"} for module in ("pathlib", "pathlib._local")
        },  # the module depends on the version of Python
    }
)


class _Part(NamedTuple):
    """The block of a tensor that a rank has: its values, its offsets in the whole tensor, and the shape of the whole tensor."""

    tensor: Tensor  # the rank's part
    offsets: torch.Size  # the place of its first element in the whole tensor
    whole: torch.Size  # the shape of the whole tensor


def save_parts(folder: Path, parallel: ParallelModel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]) -> None:
    """Write the weights and states of this rank; all ranks must call this, and `.metadata` is written last.

    Args:
        folder: The folder of this checkpoint alone.
        parallel: The model on this rank.
        optimizer: AdamW, after a step.
        shapes: The shapes of the whole parameters, by name.

    Raises:
        WriteError: a rank cannot write its part.
    """
    parts = dict(_blocks_of_rank(parallel, optimizer, shapes))
    try:
        save({name: part.tensor for name, part in parts.items()}, checkpoint_id=folder, planner=_Save(parts))
    except CheckpointException as error:
        raise WriteError(f"--checkpoint: cannot write {str(folder)!r}: {_first_failure(error.failures)}") from error


def _first_failure(failures: Mapping[int, tuple[BaseException, object]]) -> str:
    """Return why the first of the failed ranks could not write."""
    rank, (why, _) = min(failures.items(), key=itemgetter(0))
    return f"rank {rank}: {(why.strerror if isinstance(why, OSError) else None) or str(why).partition(chr(10))[0]}"


def empty_states(optimizer: Optimizer) -> None:
    """Create the states of AdamW that its first step would create, as zeros."""
    for _, of, states in parameter_states(optimizer):
        moments = {name: torch.zeros_like(of, memory_format=torch.preserve_format) for name in MOMENTS}
        states.update(step=torch.zeros((), dtype=torch.float32), **moments)


def load_parts(folder: Path, parallel: ParallelModel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]) -> None:
    """Load the weights and states of this rank from a checkpoint of any number of ranks, after `empty_states`.

    Args:
        folder: The folder of the checkpoint.
        parallel: The model on this rank.
        optimizer: AdamW, with empty states.
        shapes: The shapes of the whole parameters, by name.
    """
    parts = dict(_blocks_of_rank(parallel, optimizer, shapes))
    with torch.no_grad():
        load({name: part.tensor for name, part in parts.items()}, storage_reader=_Reader(folder), planner=_Load(parts))


def read_metadata(folder: Path) -> Metadata:
    """Return the names and sizes of the tensors in a checkpoint, and the files in which their blocks are.

    Raises:
        InputError: its `.metadata` names something that could be code.
        Exception: the bytes are no pickle; the kind depends on them.
    """
    with (folder / _WHOLE).open("rb") as file:
        found: Metadata = _Records(file).load()
    return found


class _Records(pickle.Unpickler):
    """An unpickler that loads only DCP's records of the sizes and offsets of tensors, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function of the records of PyTorch's Distributed Checkpoint (DCP), for safe unpickling.

        Raises:
            InputError: It is any other.
        """
        if name not in _RECORDS.get(module, ()):
            what, mend = "sizes and places, and no code", "take a folder that `emu train` has written"
            raise must_be("--checkpoint", f"the content of {_WHOLE}", what, f"{module}.{name}", mend)
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """A reader of DCP's folder format with a safe unpickler; tensors are loaded as weights only."""

    def read_metadata(self) -> Metadata:
        """Return the result of the function `read_metadata`."""
        return read_metadata(Path(self.path))


def _blocks_of_rank(
    parallel: ParallelModel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]
) -> Iterator[tuple[str, _Part]]:
    """Yield the name and this rank's block of each parameter and optimizer state; empty blocks are left out."""
    here = {parameter: states for parameter, _, states in parameter_states(optimizer)}
    for name, parameter in parallel.parameters.items():
        states, held = here.get(parameter), parallel.held[name]
        if states is not None:
            yield f"step.{name}", _Part(states["step"], torch.Size(()), torch.Size(()))
        of_shape = () if states is None else ((moment, states[moment]) for moment in MOMENTS)
        for kind, tensor in (("weight", parameter), *of_shape):
            first = torch.Size(first for first, _ in held.part)
            part = _Part(local_tensor(tensor).detach(), first, shapes[name])
            if part.tensor.numel():
                yield f"{kind}.{name}", part


def _chunk(part: _Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=part.offsets, sizes=part.tensor.shape)


class _Save(DefaultSavePlanner):
    """A DCP planner that writes blocks of tensors as plain tensors; a block that several ranks have is written once."""

    def __init__(self, parts: Mapping[str, _Part]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._parts = parts

    def create_local_plan(self) -> SavePlan:
        """Return DCP's plan for this rank, with an entry for each block that it writes."""
        return SavePlan([_item(name, part) for name, part in self._parts.items()])

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the block of the tensor that an entry of the plan names."""
        return self._parts[index.fqn].tensor


def _item(name: str, part: _Part) -> WriteItem:
    data = TensorWriteData(_chunk(part), TensorProperties.create_from_tensor(part.tensor), part.whole)
    return WriteItem(MetadataIndex(name, part.offsets), WriteItemType.SHARD, tensor_data=data)


class _Load(DefaultLoadPlanner):
    """A DCP planner that reads blocks of tensors, however the tensors were cut when they were written."""

    def __init__(self, parts: Mapping[str, _Part]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._parts = parts

    def create_local_plan(self) -> LoadPlan:
        """Return DCP's plan for this rank, with an entry for each written block that overlaps a block of the rank."""
        known = self.metadata.state_dict_metadata if self.metadata is not None else {}
        written = {name: md for name in self._parts if isinstance(md := known.get(name), TensorStorageMetadata)}
        rows = [create_read_items_for_chunk_list(name, md, [_chunk(self._parts[name])]) for name, md in written.items()]
        return LoadPlan([row for of_part in rows for row in of_part])

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return the block of the rank's tensor that an entry of the plan fills."""
        return self._parts[index.fqn].tensor
