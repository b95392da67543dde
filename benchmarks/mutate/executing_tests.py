"""The tests that execute a line, as coverage.py recorded them: a fault can be seen by no others.

`python -m pytest --cov --cov-context=test` (pytest-cov) writes such a record. What runs when a module is imported, and what
tests run in processes of their own, stands under no test: the tests of a fault there are chosen by its file.
"""

import ast
from pathlib import Path

from coverage import CoverageData


def statement_lines(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement around a line; of one that has a body, those before the body."""
    found = range(line, line + 1)
    for node in ast.walk(tree):  # what is inside comes later
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if line <= max(last, node.lineno):
                found = range(node.lineno, max(last, node.lineno) + 1)
    return found


class Record:
    """The record of a run of tests: which test executed which lines of which file.

    Args:
        path: The data file of coverage.py.
        root: The root of the repository in which the tests ran.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.root = root
        self._data = CoverageData(str(path))
        self._data.read()

    def tests(self, path: Path, line: int) -> list[str]:
        """Return the tests that executed the statement of a line; none if it ran in no test, or at an import too."""
        file = (self.root / path).resolve()
        by_line = self._data.contexts_by_lineno(str(file))
        lines = statement_lines(ast.parse(file.read_bytes()), line)
        contexts = {context for each in lines for context in by_line.get(each, ())}
        return [] if "" in contexts else sorted({context.rpartition("|")[0] for context in contexts})


def in_order(tests: list[str], named: list[str]) -> list[str]:
    """Return tests in the order of the files and folders that are chosen by a fault's file; those of other files come last."""

    def place(test: str) -> int:
        file = test.partition("::")[0]
        return next((i for i, name in enumerate(named) if file == name or file.startswith(f"{name}/")), len(named))

    return sorted(tests, key=place)
