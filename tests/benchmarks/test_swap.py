"""A test that counts what is built turns red when another topology of the family stands in its place; no other does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.swap.others import others, swapped
from benchmarks.swap.rows import rows
from emu.topology.catalogue import build_topology

ROOT = Path(__file__).parents[2]
PAGE = """# A page

`ROWS` is
`test_rows` in a file.

| id | what | printed | computed | held by, or why not |
|---|---|---|---|---|
| a-1 | P(a \\| b) | 1 | 1 | `ROWS`, and `test_more_...` of `test_some.py` |
| a-2 | none | 2 | | not built yet |

| id | what | held by |
|---|---|---|
| b-1 | of class M | `test_other` |

| what | held by, or why not |
|---|---|
| no id | `test_other` |
"""


def test_a_row_is_read_with_the_tests_that_its_last_column_names(tmp_path):
    (tmp_path / "a.md").write_text(PAGE)
    (row,) = rows(tmp_path)
    assert (row.id, row.tests) == ("a-1", ("test_rows", "test_more_..."))
    assert [row.names(name) for name in ("test_rows", "test_more_of_it", "test_more", "test_rows_too")] == [1, 1, 0, 0]


def test_every_row_of_the_pages_names_tests_that_there_are():
    functions = {
        line.split("(")[0].removeprefix("def ")
        for path in (ROOT / "tests").rglob("test_*.py")
        for line in path.read_text().splitlines()
        if line.startswith("def test_")
    }
    missing = [(row.id, test) for row in rows() for test in row.tests if not any(map(_only(test).names, functions))]
    assert not missing


def _only(test):
    return rows()[0].__class__("", "", (test,))


def test_what_stands_in_a_place_is_of_the_family_and_has_other_links_under_the_same_name_and_bill():
    line = "nvl:72"
    found = others(line, 6)
    assert found[0] == "nvl:36x2"  # as many GPUs, other links
    assert {other.partition(":")[0] for other in found} == {"nvl"}
    assert line not in found
    mine, theirs = build_topology(line), swapped(line, found[0])
    assert (theirs.name, theirs.bill) == (mine.name, mine.bill)
    assert len(theirs.links) != len(mine.links)


TESTS = """
from functools import cache

import pytest

from emu.topology.catalogue import build_topology

built = cache(build_topology)


@pytest.mark.parametrize("row", ["counted", "bought", "typed"])
def test_a_row(row):
    rack = built("nvl:36")
    found = {"counted": len(rack.links), "bought": rack.bill["NVLink switch"] * 8, "typed": 72}
    assert found[row] == 72
"""


@pytest.mark.parametrize(("row", "red"), [("counted", "yes"), ("bought", "**no**"), ("typed", "**no**")])
def test_a_count_of_links_is_red_and_what_the_settings_say_is_not(tmp_path, row, red):
    (tmp_path / "a.md").write_text(PAGE.replace("a-1", row).replace("`ROWS`, and `test_more_...` of", "`test_a_row` of"))
    (tmp_path / "test_rows.py").write_text(TESTS)
    words = [sys.executable, "-m", "benchmarks.swap", "--pages", str(tmp_path), "--tests", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    line = next(line for line in run.stdout.splitlines() if line.startswith(f"| {row} |"))
    assert f"`test_rows.py::test_a_row[{row}]` | nvl:36 | nvl:" in line
    assert line.endswith(f" | {red} |")
    assert run.returncode == (red != "yes")
