"""What rows came to, kept between commands: a row is worked out once, until the code or what is given of it changes."""

from functools import cache
from pathlib import Path

from emu.arrays import digest
from emu.study.choice.kept import code
from emu.study.planning.search.kept import Kept
from launch.papers.paper import Paper
from launch.papers.targets import Answer, Target

_NO_CODE = (".pyc", ".md")
_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "data")


def answer_of(paper: Paper, target: Target, kept: Kept) -> Answer:
    """What Emu says of a row, which is read where it is kept."""
    name = "row " + digest((code(), _more_code(), repr(target)))
    found = kept.read(name)
    if found is not None:
        return Answer(**{**found, "notes": tuple(found["notes"])})
    answer = paper.answer(target)
    holds = None if answer.holds is None else bool(answer.holds)  # numpy's own is no JSON
    kept.write(name, {"ours": answer.ours, "notes": answer.notes, "off": answer.off, "holds": holds})
    return answer


@cache
def _more_code() -> str:
    """Of what the papers' rows are worked out by beside Emu: the files here, and devices, prices and logs."""
    files = sorted(path for folder in _FOLDERS for path in folder.rglob("*") if path.is_file() and path.suffix not in _NO_CODE)
    return digest((path.name, path.read_bytes()) for path in files)
