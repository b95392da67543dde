"""The tests that execute a line, as coverage.py recorded them: a fault can be seen by no others.

`python -m pytest --cov --cov-context=test` (pytest-cov) writes such a record. What runs when a module is imported, and what
tests run in processes of their own, stands under no test: the tests of a fault there are chosen by its file.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

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
        return [] if "" in contexts else _names(contexts)

    def tests_of_file(self, path: Path) -> list[str]:
        """Return the tests that executed any statement of a file, which see most of what its import makes."""
        by_line = self._data.contexts_by_lineno(str((self.root / path).resolve()))
        return _names({context for contexts in by_line.values() for context in contexts} - {""})


def _names(contexts: set[str]) -> list[str]:
    """Return the names of the tests of some contexts, which pytest-cov calls `TEST|run`."""
    return sorted({context.rpartition("|")[0] for context in contexts})


def seconds_of_tests(report: Path) -> dict[str, float]:
    """Return the seconds that each test took, by its name, from a report that pytest wrote with `--junitxml`."""
    cases = ElementTree.parse(report).iter("testcase")
    return {_reported_name(case.get("classname", ""), case.get("name", "")): float(case.get("time", 0)) for case in cases}


def _reported_name(classname: str, name: str) -> str:
    """Return the name that a report has for a test: its file and classes with dots, and its own name."""
    return f"{classname}::{name}"


def in_order(tests: list[str], named: list[str], seconds: Mapping[str, float] | None = None) -> list[str]:
    """Return tests in the order in which they are run, those of one file together.

    Args:
        tests: The names of the tests.
        named: The files and folders that are chosen by a fault's file; tests of other files are further away than all of them.
        seconds: The seconds that each test took, by `seconds_of_tests`. With them the quickest files come first, where a file
            that is `i` places away counts as `i + 1` times as slow.
    """

    def distance(file: str) -> int:
        return next((i for i, name in enumerate(named) if file == name or file.startswith(f"{name}/")), len(named))

    by_file: dict[str, list[str]] = {}
    for test in tests:
        by_file.setdefault(test.partition("::")[0], []).append(test)
    cost: dict[str, float] = {file: distance(file) for file in by_file}
    if seconds is not None:
        takes = {file: sum(seconds.get(_as_reported(test), 1.0) for test in some) for file, some in by_file.items()}
        cost = {file: takes[file] * (away + 1) for file, away in cost.items()}
    return [test for file in sorted(by_file, key=cost.__getitem__) for test in by_file[file]]


def _as_reported(test: str) -> str:
    """Return the name that a report has for `tests/a/test_b.py::Class::test[value]`."""
    file, _, rest = test.partition("::")
    own, bracket, values = rest.partition("[")
    *classes, name = own.split("::")
    return _reported_name(".".join([file.removesuffix(".py").replace("/", "."), *classes]), name + bracket + values)
