"""Programs drawn at random whose ranks have threads, stores and groups of their own: as on gloo, and always the same."""

import re

import pytest

from tests.cluster.threaded import differences, ends_of
from tests.scripts.threaded_parts.faults import FAULTS

SIZES = (2, 3, 4)
BATCH = 20


def seeds(n, first, count):
    """Return seeds that no other number of ranks has."""
    return [f"{n}{seed:04}" for seed in range(first, first + count)]


@pytest.mark.parametrize("n", SIZES)
def test_programs_find_what_they_find_on_gloo_and_leave_the_same_trace_twice(n, tmp_path):
    assert differences(tmp_path, n, seeds(n, 0, 7)) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(17))
@pytest.mark.parametrize("n", SIZES)
def test_a_thousand_programs_do(n, batch, tmp_path):
    assert differences(tmp_path, n, seeds(n, 100 + BATCH * batch, BATCH)) == []


def check_ends(folder, n, programs):
    """Each ends at once with one line, which names the rank and the line that waits in vain."""
    for program, said in ends_of(folder, n, programs).items():
        assert re.search(r"rank \d.*faults\.py:\d", said), (program, said)
        assert said.startswith("mismatch" if program.endswith("collective") else "deadlock"), (program, said)


def test_programs_that_wait_in_vain_end_with_the_rank_and_the_line(tmp_path):
    check_ends(tmp_path, 3, [f"{i}:{fault}" for i, fault in enumerate(FAULTS)])


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("fault", FAULTS)
def test_twenty_programs_of_each_fault_do(n, fault, tmp_path):
    check_ends(tmp_path, n, [f"{seed}:{fault}" for seed in seeds(n, 0, 20)])
