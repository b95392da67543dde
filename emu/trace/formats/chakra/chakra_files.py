"""The files of an execution trace: one of each rank, and beside them the process groups, or a map of ranks to roles."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, WriteError
from emu.files import read_input
from emu.trace.formats.chakra.chakra_node import WHAT, NodeFile
from emu.trace.formats.chakra.chakra_schema import NodeType

ENDING = ".et"
GROUPS, MAP = ".groups.json", ".map.json"  # behind the prefix of the files of ranks
_NUMBERED = re.compile(r"(?:(.*?)[._-])?(?:rank|npu)?[._-]?(\d+)\.et")  # such as all_gather.0.et or rank_0.et
Groups = Mapping[str, tuple[int, ...]]


class TraceFiles(NamedTuple):
    """The files of an execution trace of all ranks."""

    folder: Path
    prefix: str  # the beginning of the names of all files
    of_rank: Mapping[int, Path]  # the file of each rank

    @property
    def map(self) -> Path:
        """The map of ranks to roles, where there is one."""
        return self.folder / (self.prefix + MAP)


def is_chakra(path: Path) -> bool:
    """Return whether a path may be an execution trace: a name such as `NAME.et`, or a folder with such a file."""
    return path.name.endswith(ENDING) or (path.is_dir() and any(path.glob(f"*{ENDING}")))


def trace_files(path: Path) -> TraceFiles:
    """Return the files that a path means.

    The path is a folder with the files, or a file, or the name `NAME.et` of the files `NAME.0.et`, `NAME.1.et` and so on.

    Raises:
        InputError: there is none, or a folder has those of several runs.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_file():
        found = _NUMBERED.fullmatch(path.name)
        return TraceFiles(folder, (found[1] or "") if found else path.stem, {int(found[2]) if found else 0: path})
    maps = [each.name.removesuffix(MAP) for each in sorted(folder.glob(f"*{MAP}"))]
    numbered = _numbered(folder)
    named = [*dict.fromkeys((*maps, *numbered))]
    if path.is_dir() and len(named) > 1:
        raise InputError(f"{WHAT}: {str(path)!r} has the files of {named[0]!r} and {named[1]!r}; name one by {named[0]}.et")
    prefix = named[0] if path.is_dir() and named else path.stem
    if prefix not in (*numbered, *maps):
        what = "no file NAME.0.et in it" if path.is_dir() else f"neither it nor {prefix}.0.et is a file"
        raise InputError(f"{WHAT}: cannot read {str(path)!r}: {what}; name the files of ranks by their numbers")
    return TraceFiles(folder, prefix, numbered.get(prefix, {}))


def _numbered(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the numbered files of a folder, by prefix and number.

    Raises:
        InputError: two have one number.
    """
    found: dict[str, dict[int, Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _NUMBERED.fullmatch(file.name)
        if match and not file.name.startswith("."):
            other = found.setdefault(match[1] or "", {}).setdefault(int(match[2]), file)
            if other != file:
                raise InputError(
                    f"{WHAT}: {other.name!r} and {file.name!r} are both of rank {int(match[2])}; remove one of them"
                )
    return found


def remove_older(what: str, name: Path, ranks: int) -> None:
    """Remove the files of an older trace that a new one of its name would not replace: its map, and those of more ranks.

    Args:
        what: The option that names the trace.
        name: The path of the trace without its ending.
        ranks: The number of ranks that have a file each; 0: the new trace has a map.

    Raises:
        WriteError: one cannot be removed.
    """
    written = re.compile(re.escape(name.name) + r"\.(\d+)\.et")
    numbers = {file: int(found[1]) for file in name.parent.iterdir() if (found := written.fullmatch(file.name))}
    maps = [name.with_name(name.name + MAP)] if ranks else []
    for file in (*maps, *(file for file, number in numbers.items() if number >= ranks)):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(f"{what}: cannot remove {str(file)!r}, of an older trace: {error.strerror}") from None


def groups_beside(files: TraceFiles) -> Groups:
    """Return the process groups of a trace from the JSON file beside it, as ASTRA-sim takes them; {}: there is none.

    Raises:
        InputError: two such files are there, and none has the name of the trace.
    """
    own = files.folder / (files.prefix + GROUPS)
    known = {file: groups for file in ([own] if own.is_file() else _others(files)) if (groups := _groups(file))}
    if len(known) > 1:
        first, second, *_ = (file.name for file in known)
        raise InputError(f"{WHAT}: {first!r} and {second!r} both have groups; name that of {files.prefix!r} {own.name!r}")
    return next(iter(known.values()), {})


def _others(files: TraceFiles) -> list[Path]:
    return [each for each in sorted(files.folder.glob("*.json")) if not each.name.endswith((GROUPS, MAP))]


def _groups(path: Path) -> Groups:
    """Return the groups of a JSON file: an object with the list of ranks of each number; {}: it holds something else."""
    try:
        found = json.loads(read_input(WHAT, path))
        if isinstance(found, dict) and all(str(name).isdecimal() for name in found):
            return {name: tuple(map(int, ranks)) for name, ranks in found.items()}
    except (TypeError, ValueError):
        pass
    return {}


def groups_in_metadata(file: NodeFile) -> Groups:
    """Return the process groups that PyTorch wrote into a node of metadata, by name.

    Raises:
        InputError: the node has something else than PyTorch writes.
    """
    found: dict[str, tuple[int, ...]] = {}
    for node in file.nodes:
        at, end = node.inputs.find("[{"), node.inputs.rfind("}]")
        if node.type == NodeType.METADATA and at >= 0 and "pg_name" in node.inputs:
            try:
                entries: list[Any] = json.loads(node.inputs[at : end + 2])
                found.update({str(each["pg_name"]): tuple(map(int, each["ranks"])) for each in entries})
            except (TypeError, KeyError, ValueError):
                raise file.bad(node, "must have a list of process groups as PyTorch writes it; convert it again") from None
    return found


def ranks_named(files: Iterable[NodeFile], groups: Iterable[Groups]) -> int:
    """Return the number of ranks that the largest rank named in a message or a group implies: one more than this rank."""
    most = [node.attrs.get(word, 0) for file in files for node in file.nodes for word in ("comm_src", "comm_dst")]
    listed = [rank for of_file in groups for ranks in of_file.values() for rank in ranks]
    return 1 + max((*(each for each in most if isinstance(each, int)), *listed), default=-1)
