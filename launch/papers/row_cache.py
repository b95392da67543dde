"""The cache of rows: a row is computed once, until the code or its inputs change."""

from pathlib import Path

from emu.arrays import digest
from emu.sources import code_digest
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.paper import Paper
from launch.papers.targets import Answer, Target

_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "data")  # code of rows, and devices, prices, models and logs


def name_of(what: str, *asked: object) -> str:
    """Return the name of a result in the cache; it depends on all code and data that the result follows from.

    Args:
        what: The kind of result.
        *asked: The inputs of the result.
    """
    return f"{what} {digest((code_digest(*_FOLDERS), *asked))}"


def answer_of(paper: Paper, target: Target, kept: ResultCache) -> Answer:
    """Return Emu's answer to a row, read from the cache if it is there."""
    name = name_of("row", target)
    found = kept.read(name)
    if found is not None:
        return Answer(**{**found, "notes": tuple(found["notes"])})
    answer = paper.answer(target)
    holds = None if answer.holds is None else bool(answer.holds)  # JSON cannot hold numpy's bool
    kept.write(name, {"ours": answer.ours, "notes": answer.notes, "off": answer.off, "holds": holds})
    return answer
