"""The rows of docs/targets/*.md: a figure of a paper each, and the tests that hold it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs/targets"
_SHORT = re.compile(r"(`ROWS`|\*[\w ]+\*) is\s+`(test_\w+)`")  # what a page calls one of its tests
_TEST = re.compile(r"`(test_[\w.]+?)`")
_HEADS = "held by, or why not"  # the last column of a table of figures that are exact


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a page."""

    id: str
    page: str
    tests: tuple[str, ...]  # names; `...` stands for any words

    def names(self, function: str) -> bool:
        """Whether it names a test function."""
        return any(re.fullmatch(re.escape(test).replace(r"\.\.\.", r"\w*"), function) for test in self.tests)


def rows(pages: Path = PAGES) -> list[Row]:
    """All rows of exact figures that name a test, page by page."""
    return [row for page in sorted(pages.glob("*.md")) for row in _of_page(page)]


def _of_page(page: Path) -> Iterator[Row]:
    text, inside, counted = page.read_text(), False, False
    short = dict(_SHORT.findall(text))
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and not inside:  # the head of a table
            counted = (cells[0], cells[-1]) == ("id", _HEADS)
        elif counted and cells:
            tests = _tests(cells[-1], short)
            if tests:
                yield Row(cells[0], page.name, tests)
        inside = bool(cells)


def _tests(cell: str, short: dict[str, str]) -> tuple[str, ...]:
    for word, test in short.items():
        cell = cell.replace(word, f"`{test}`")
    return tuple(test for test in _TEST.findall(cell) if not test.endswith(".py"))
