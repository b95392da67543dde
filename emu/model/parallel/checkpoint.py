"""What a rank trains, kept in a folder by PyTorch's distributed checkpoint (DCP), and taken up again by ranks of any number.

Each rank writes its parts of weights and of AdamW's states, by their places in the whole: a plan with other parts reads them.
DCP says what is where in a pickle, of which nothing is taken but its own records: a folder can be of anybody.
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
from emu.model.parallel.data import stated
from emu.model.parallel.where import Held, local
from emu.model.parallel.wrap import Parallel

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's states of a parameter's shape; `step` counts
_WHOLE = ".metadata"
_DCP = "torch.distributed.checkpoint"
_OF_TENSORS = {"TensorProperties", "TensorStorageMetadata", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"}
_RECORDS: Mapping[str, set[str]] = MappingProxyType(  # by module, what the pickle of a checkpoint of Emu's names
    {
        f"{_DCP}.metadata": {"Metadata", "MetadataIndex", "StorageMeta", *_OF_TENSORS},
        f"{_DCP}.filesystem": {"_StorageInfo"},
        "torch": {"Size", "float32"},
        "torch.serialization": {"_get_layout"},
        **{module: {"PosixPath", "WindowsPath"} for module in ("pathlib", "pathlib._local")},  # by the version of Python
    }
)


class _Part(NamedTuple):
    """What a rank has of a tensor."""

    tensor: Tensor  # here
    offsets: torch.Size  # of its first element in the whole
    whole: torch.Size


def save_parts(folder: Path, parallel: Parallel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]) -> None:
    """Write what this rank trains; every rank calls it, and the folder is whole once its `.metadata` is there.

    Args:
        folder: Of this checkpoint alone.
        parallel: The rank's parameters.
        optimizer: AdamW, after a step.
        shapes: Of the whole parameters, by name.

    Raises:
        WriteError: a rank cannot write what it has.
    """
    parts = dict(_parts(parallel, optimizer, shapes))
    try:
        save({name: part.tensor for name, part in parts.items()}, checkpoint_id=folder, planner=_Save(parts))
    except CheckpointException as error:
        raise WriteError(f"--checkpoint: cannot write {str(folder)!r}: {_first(error.failures)}") from error


def _first(failures: Mapping[int, tuple[BaseException, object]]) -> str:
    """Return why the first of the ranks that failed could not write."""
    rank, (why, _) = min(failures.items(), key=itemgetter(0))
    return f"rank {rank}: {(why.strerror if isinstance(why, OSError) else None) or str(why).partition(chr(10))[0]}"


def empty_states(optimizer: Optimizer) -> None:
    """Give AdamW the states that its first step would make."""
    for _, of, states in stated(optimizer):
        moments = {name: torch.zeros_like(of, memory_format=torch.preserve_format) for name in MOMENTS}
        states.update(step=torch.zeros((), dtype=torch.float32), **moments)


def load_parts(folder: Path, parallel: Parallel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]) -> None:
    """Take up what ranks of any number have written; arguments as of `save_parts`, after `empty_states`."""
    parts = dict(_parts(parallel, optimizer, shapes))
    with torch.no_grad():
        load({name: part.tensor for name, part in parts.items()}, storage_reader=_Reader(folder), planner=_Load(parts))


def read_metadata(folder: Path) -> Metadata:
    """Return what is where in a checkpoint.

    Raises:
        InputError: its `.metadata` names something that could be code.
        Exception: whatever bytes raise that are no pickle.
    """
    with (folder / _WHOLE).open("rb") as file:
        found: Metadata = _Records(file).load()
    return found


class _Records(pickle.Unpickler):
    """Reads DCP's records of sizes and places."""

    def find_class(self, module: str, name: str) -> Any:
        """A class or a function of those; nothing else is even imported."""
        if name not in _RECORDS.get(module, ()):
            what, mend = "sizes and places, and no code", "take a folder that `emu train` has written"
            raise must_be("--checkpoint", f"what {_WHOLE} has", what, f"{module}.{name}", mend)
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """Reads a folder as DCP does, but for the pickle; DCP loads the tensors as weights only."""

    def read_metadata(self) -> Metadata:
        """As the function of that name."""
        return read_metadata(Path(self.path))


def _parts(parallel: Parallel, optimizer: Optimizer, shapes: Mapping[str, torch.Size]) -> Iterator[tuple[str, _Part]]:
    """Of each parameter its part, and those of the states that are here; none of what has no element here."""
    here = {each.parameter: each.states for each in stated(optimizer)}
    for name, parameter in parallel.parameters.items():
        states, held = here.get(parameter), parallel.held[name]
        if states is not None:
            yield f"step.{name}", _Part(states["step"], torch.Size(()), torch.Size(()))
        of_shape = () if states is None else ((moment, states[moment]) for moment in MOMENTS)
        for kind, tensor in (("weight", parameter), *of_shape):
            part = _part(local(tensor).detach(), held, shapes[name])
            if part.tensor.numel():
                yield f"{kind}.{name}", part


def _part(here: Tensor, held: Held, whole: torch.Size) -> _Part:
    return _Part(here, torch.Size(first for first, _ in held.part), whole)


def _chunk(part: _Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=part.offsets, sizes=part.tensor.shape)


class _Save(DefaultSavePlanner):
    """Writes parts that are plain tensors at their places; one that several ranks have is written once."""

    def __init__(self, parts: Mapping[str, _Part]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._parts = parts

    def create_local_plan(self) -> SavePlan:
        """A row for each part."""
        return SavePlan([_item(name, part) for name, part in self._parts.items()])

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The part of a row."""
        return self._parts[index.fqn].tensor


def _item(name: str, part: _Part) -> WriteItem:
    data = TensorWriteData(_chunk(part), TensorProperties.create_from_tensor(part.tensor), part.whole)
    return WriteItem(MetadataIndex(name, part.offsets), WriteItemType.SHARD, tensor_data=data)


class _Load(DefaultLoadPlanner):
    """Reads the parts from whatever parts were written."""

    def __init__(self, parts: Mapping[str, _Part]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._parts = parts

    def create_local_plan(self) -> LoadPlan:
        """Rows for what overlaps each part."""
        known = self.metadata.state_dict_metadata if self.metadata is not None else {}
        written = {name: md for name in self._parts if isinstance(md := known.get(name), TensorStorageMetadata)}
        rows = [create_read_items_for_chunk_list(name, md, [_chunk(self._parts[name])]) for name, md in written.items()]
        return LoadPlan([row for of_part in rows for row in of_part])

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The part of a row."""
        return self._parts[index.fqn].tensor
