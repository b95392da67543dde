"""What rows came to, kept between commands: a row is worked out once, until the code or what is given of it changes."""

from pathlib import Path

from emu.arrays import digest
from emu.sources import code_digest
from emu.study.planning.search.kept import Kept
from launch.papers.paper import Paper
from launch.papers.targets import Answer, Target

_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "data")  # the rows' code; devices, prices, models and logs


def name_of(what: str, *asked: object) -> str:
    """Return the name under which what was worked out for a paper is kept, by all the code and data that it follows from."""
    return f"{what} {digest((code_digest(*_FOLDERS), *asked))}"


def answer_of(paper: Paper, target: Target, kept: Kept) -> Answer:
    """What Emu says of a row, which is read where it is kept."""
    name = name_of("row", target)
    found = kept.read(name)
    if found is not None:
        return Answer(**{**found, "notes": tuple(found["notes"])})
    answer = paper.answer(target)
    holds = None if answer.holds is None else bool(answer.holds)  # numpy's own is no JSON
    kept.write(name, {"ours": answer.ours, "notes": answer.notes, "off": answer.off, "holds": holds})
    return answer
