"""Two checkouts side by side: what a row says, and that a checkout is really run."""

import sys

import pytest

from benchmarks import against
from benchmarks.against import HERE, Cost, cost, main, row


def test_a_row_has_both_times_their_ratio_both_peaks_and_whether_the_virtual_time_is_the_same() -> None:
    before = Cost(2.0, 3 * 10**9, 7, 0.5)
    assert row("a", before, Cost(1.0, 2 * 10**9, 9, 0.5)) == "| `a` | 2 | 1 | 0.50 | 3.00 | 2.00 | same |"
    assert row("a", before, Cost(3.0, 3 * 10**9, 7, 0.4)).endswith("| 1.50 | 3.00 | 3.00 | 0.8 |")
    assert "not in the other" in row("a", None, before)
    assert "not in this" in row("a", before, None)


def test_a_case_is_run_in_a_checkout_of_its_own_and_a_case_that_it_lacks_is_none() -> None:
    found = cost(HERE, "ring-1024-declared", repeats=1)
    assert found is not None
    assert (found.tasks, found.end_s) == (2046, pytest.approx(4.728e-3, rel=1e-3))
    assert 0 < found.cpu_s < 5
    assert found.peak_bytes > 50 * 2**20
    assert cost(HERE, "no-such-case", repeats=1) is None


def test_every_chosen_case_is_a_row_of_the_least_of_its_turns(monkeypatch, capsys) -> None:
    spent = iter([4.0, 2.0, 8.0, 3.0] * 2)
    monkeypatch.setattr(against, "cost", lambda *_: Cost(next(spent), 10**9, 1, 1.0))
    monkeypatch.setattr(sys, "argv", ["against", str(HERE), "ring-1024"])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `ring-1024` | 4 | 2 | 0.50 | 1.00 | 1.00 | same |",
        "| `ring-1024-declared` | 4 | 2 | 0.50 | 1.00 | 1.00 | same |",
    ]


def test_a_folder_that_is_no_checkout_is_refused(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(sys, "argv", ["against", str(tmp_path)])
    assert main() == 2
    assert "needs the folder of another checkout" in capsys.readouterr().err
