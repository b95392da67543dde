"""Commands that a signal ends leave nothing; and what is left is seen."""

import random
import sys

import pytest

from benchmarks.killed import trial
from benchmarks.killed.__main__ import killed, shown
from benchmarks.killed.cases import CASES, Case
from benchmarks.killed.trial import CODES, Trial, tried

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it takes the place of a parent that has ended")
LEAVES = """#!/bin/sh
touch "$TMPDIR/emu-1234" beside.csv.draft
printf 'a,b\\n1' > x.csv
echo 'rank 0 has done step 0' > said-0
(setsid sleep 3600 &)
exit 7
"""


def test_all_that_is_left_is_seen(tmp_path, monkeypatch):
    command = tmp_path / "leaves"
    command.write_text(LEAVES)
    command.chmod(0o755)
    monkeypatch.setattr(trial, "EMU", command)
    monkeypatch.setattr(trial, "_PATIENCE_S", 1.0)
    found = tried(Case(("x.csv",)), "SIGTERM", 5.0, tmp_path)
    assert sorted(found.wrong) == [
        "exit code 7: ",
        "file beside.csv.draft",
        "half of x.csv: AssertionError",
        "process sleep 3600",
        "temporary emu-1234",
        "unsaid: rank 0 has done step 0",
    ]


def test_a_command_that_is_killed_as_it_starts_leaves_nothing(tmp_path):
    for how in CODES:
        assert tried(CASES["estimate"], how, 0.3, tmp_path).wrong == ()


@pytest.mark.slow  # minutes
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.ray if "ray" in name else ()) for name in CASES])
def test_a_command_that_is_killed_at_any_moment_leaves_nothing(name, tmp_path):
    found = killed([name], 8, random.Random(7), tmp_path)
    assert [wrong for trials in found.values() for one in trials for wrong in one.wrong] == []


def test_the_table_has_a_line_for_each_command_and_signal():
    found = {
        ("run", "SIGINT"): [Trial((), 0.5, 1.0), Trial(("file x",), 0.2, 2.0)],
        ("bench", "SIGKILL"): [Trial((), 0.0, 0.1)],
    }
    assert [line.split() for line in shown(found).splitlines()[1:]] == [
        ["bench", "SIGKILL", "1", "0", "0.0", "0.1"],
        ["run", "SIGINT", "2", "1", "0.5", "2.0"],
    ]
