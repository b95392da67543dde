"""A command that Ctrl-C or SIGTERM stops prints the report of what was finished, and says how many that is."""

import re
from itertools import islice

import pytest

from launch.front import measurements, proofs
from launch.front.steps import estimates

BOARDS = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=1us", "--topology", "ub-mesh:board")
BENCH = ("bench", "all_reduce", "--size", "1MiB", "--timing-only", "--ranks", "4", *BOARDS)
ESTIMATE = ("estimate", "--model", "llama-tiny", "--plan", "dp=4,microbatch=1", "--global-batch", "4", "--seq", "64")
SAID = "emu: interrupted: 1 of 2 were finished and are printed; --out FILE.jsonl keeps each\n"


def stop_at_second(monkeypatch, module, name: str) -> None:
    """Let a function work once, and be stopped by Ctrl-C when it is called again."""
    plain, calls = getattr(module, name), []

    def stopping(*given):
        calls.append(given)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr(module, name, stopping)


def stop_after_two(monkeypatch, module, name: str) -> None:
    """Let a function that yields rows be stopped by Ctrl-C after the second."""
    plain = getattr(module, name)

    def stopping(*given):
        yield from islice(plain(*given), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, stopping)


def test_finished_rows_of_a_bench_are_printed(emu, monkeypatch):
    stop_at_second(monkeypatch, measurements, "measure")
    done = emu(*BENCH)
    assert (done.code, done.err.lstrip()) == (130, SAID)
    assert done.out.startswith("topology")
    assert "switch:n=4" in done.out
    assert "ub-mesh" not in done.out


def test_finished_steps_of_an_estimate_are_printed(emu, monkeypatch):
    stop_at_second(monkeypatch, estimates, "estimate_and_times")
    done = emu(*ESTIMATE, *BOARDS)
    assert (done.code, done.err.lstrip()) == (130, SAID)
    assert "switch:n=4" in done.out


def test_finished_algorithms_of_a_comparison_are_printed(emu, monkeypatch):
    stop_after_two(monkeypatch, measurements, "compare")
    done = emu(*BENCH[:-2], "--algorithm", "all")
    assert done.code == 130
    assert "emu: interrupted: 2 of " in done.err
    assert "fastest: 1 MiB: " in done.out


def test_where_nothing_was_finished_nothing_is_printed(emu, monkeypatch):
    def stopping(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(measurements, "measure", stopping)
    done = emu(*BENCH)
    assert (done.code, done.out, done.err.lstrip()) == (130, "", "emu: interrupted\n")


@pytest.mark.parametrize("option", [("--json",), ("--out", "rows.jsonl")])
def test_json_is_that_of_a_whole_answer_and_a_file_has_the_rows(emu, monkeypatch, option, tmp_path):
    monkeypatch.chdir(tmp_path)
    stop_at_second(monkeypatch, measurements, "measure")
    done = emu(*BENCH, *option)
    assert (done.code, done.out) == (130, "")
    assert ("not printed, as JSON is that of a whole answer" in done.err) == (option == ("--json",))
    assert (tmp_path / "rows.jsonl").exists() == (option != ("--json",))


def test_finished_proofs_are_printed(emu, monkeypatch):
    stop_after_two(monkeypatch, proofs, "verified")
    done = emu("verify", "all_reduce", "--ranks", "2", "--ranks", "4")
    assert done.code == 130
    assert re.search("emu: interrupted: 2 of [0-9]+ were finished and are printed", done.err)
    assert len([line for line in done.out.splitlines() if line.startswith("all_reduce")]) == 2
