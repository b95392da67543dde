"""The files of a Chakra execution trace: one of each rank, plus the process groups or a map of ranks to roles."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, must_be
from emu.files import MOST_TEXT_BYTES, has_ending, read_input
from emu.trace.formats.chakra.chakra_node import WHAT, NodeFile
from emu.trace.formats.chakra.chakra_schema import NodeType
from emu.trace.formats.rank_group import MOST_RANKS, is_count, told_ranks

ENDING = ".et"
GROUPS, MAP = ".groups.json", ".map.json"  # behind the prefix of the files of ranks
_NUMBERED = re.compile(r"(?:(.*?)[._-])?(?:rank|npu)?[._-]?(\d+)\.et", re.IGNORECASE)  # all_gather.0.et, rank_0.et
_OF_GROUPS = re.compile(rb'\s*\{\s*("\d+"\s*:|\})')  # the beginning of a file of groups
_HEAD = 4096  # bytes by which a JSON file is known as one of groups
_MESSAGES, _ENDS = (NodeType.COMM_SEND, NodeType.COMM_RECV), ("comm_src", "comm_dst")
_MOST_DIGITS = len(str(MOST_RANKS))
Groups = Mapping[str, tuple[int, ...]]


class TraceFiles(NamedTuple):
    """The files of a Chakra execution trace of all ranks, whose names begin with `prefix`."""

    folder: Path
    prefix: str  # the beginning of the names of all files
    of_rank: Mapping[int, Path]  # the file of each rank

    @property
    def map(self) -> Path:
        """The path of the file that maps ranks to roles."""
        return self.beside(MAP)

    def beside(self, ending: str) -> Path:
        """Return the path of the trace's file with an ending (in capitals or not); the file may not exist."""
        named = (each for each in _with_ending(self.folder, ending) if each.name[: -len(ending)] == self.prefix)
        return next(named, self.folder / (self.prefix + ending))


def is_chakra(path: Path) -> bool:
    """Return whether a path may be a Chakra execution trace: a file `NAME.et`, or a folder with such a file."""
    return has_ending(path, ENDING) or bool(_with_ending(path, ENDING))


def trace_files(path: Path) -> TraceFiles:
    """Return the files that a path means.

    The path is a folder with the files, or a file, or the name `NAME.et` of the files `NAME.0.et`, `NAME.1.et` and so on.

    Raises:
        InputError: there is none, or a folder has those of several runs.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_file():
        found = _NUMBERED.fullmatch(path.name)
        return TraceFiles(folder, (found[1] or "") if found else path.stem, {_number(found) if found else 0: path})
    maps = [each.name[: -len(MAP)] for each in _with_ending(folder, MAP)]
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
        if match and not file.name.startswith(".") and file.is_file():
            number = _number(match)
            other = found.setdefault(match[1] or "", {}).setdefault(number, file)
            if other != file:
                raise InputError(f"{WHAT}: {other.name!r} and {file.name!r} are both of rank {number}; remove one of them")
    return found


def _number(found: re.Match[str]) -> int:
    """Return the rank in the name of a file.

    Raises:
        InputError: it is too large.
    """
    digits = found[2].lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS or int(digits) >= MOST_RANKS:
        raise must_be(WHAT, f"the rank in the name {found[0][:60]!r}", f"below {MOST_RANKS}", digits[:20])
    return int(digits)


def _with_ending(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder with an ending; empty if the folder does not exist or cannot be read."""
    try:
        return sorted(each for each in folder.iterdir() if has_ending(each, ending))
    except OSError:
        return []


def groups_beside(files: TraceFiles) -> Groups:
    """Return the process groups of a trace from the JSON file beside it; empty if there is no such file.

    Raises:
        InputError: the file with the name of the trace has none; or two such files are there, and none has that name.
    """
    own = files.beside(GROUPS)
    if own.is_file():
        return _groups(own)
    known = {file: _groups(file) for file in _with_ending(files.folder, ".json") if _may_have_groups(file)}
    if len(known) > 1:
        first, second, *_ = (file.name for file in known)
        raise InputError(f"{WHAT}: {first!r} and {second!r} both have groups; name that of {files.prefix!r} {own.name!r}")
    return next(iter(known.values()), {})


def _may_have_groups(path: Path) -> bool:
    """Return whether a file beside a trace may list its groups, judged by the file's first bytes.

    Other files are no concern of the trace: a profile of many GB, the groups of another trace, a pipe that would be waited for.
    """
    if has_ending(path, GROUPS, MAP) or not path.is_file() or path.stat().st_size > MOST_TEXT_BYTES:
        return False
    try:
        with path.open("rb") as file:
            return _OF_GROUPS.match(file.read(_HEAD)) is not None
    except OSError:
        return False


def _groups(path: Path) -> Groups:
    """Return the groups of a JSON file: an object with the list of ranks of each number.

    Raises:
        InputError: it holds something else.
    """
    try:
        found = json.loads(read_input(WHAT, path))
        if not isinstance(found, dict) or not all(name.isdecimal() for name in found):
            raise ValueError("must be an object with a list of ranks for each number of a group")
        return {name: told_ranks(ranks) for name, ranks in found.items()}
    except (RecursionError, ValueError) as error:
        why = str(error) if str(error).startswith("must ") else "must be JSON, and is cut off or damaged"
        raise InputError(f"{WHAT}: the file of groups {path.name!r} {why}; write it again") from None


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
                found.update({str(each["pg_name"]): _ranks(each) for each in entries})
            except (AttributeError, TypeError, KeyError, RecursionError, ValueError):
                raise file.bad(node, "must have a list of process groups as PyTorch writes it; convert it again") from None
    return found


def _ranks(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a process group as PyTorch lists it; of all ranks it writes none, but their number.

    Raises:
        ValueError: they are no list of ranks, or the number is none.
    """
    size = entry.get("group_size", 0)
    if not is_count(size, MOST_RANKS):
        raise ValueError(f"must have a group_size below 2**24, got {str(size)[:40]}")
    return told_ranks(entry["ranks"]) or tuple(range(size))


def ranks_named(files: Iterable[NodeFile], groups: Iterable[Groups]) -> int:
    """Return the number of ranks that messages and groups imply: one more than the largest rank they name.

    Raises:
        InputError: a message names a rank that no job has.
    """
    most = max((rank for of_file in groups for ranks in of_file.values() for rank in ranks), default=-1)
    for file in files:
        for node in file.nodes:
            for word in _ENDS:
                named = node.attrs.get(word, 0) if node.type in _MESSAGES else 0
                if not is_count(named, MOST_RANKS):
                    raise file.bad(node, f"must have a {word} of 0 or more and below 2**24, got {str(named)[:40]}")
                most = max(most, named) if word in node.attrs else most
    return 1 + most
