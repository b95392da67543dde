"""The lines of a program that made requests come back as they were kept, in a few words where many requests have one line."""

import json
import random

import pytest

from emu.trace.request_lines import Lines, lines_entry, lines_of
from tests.trace.laid import Words, trace_of


def kept(lines: list[Lines]) -> list[Lines]:
    words = Words()
    roles = [words.events(words.compute(1), words.collective(8)) for _ in lines]
    return lines_of(trace_of(*roles, role_of_rank=tuple(range(len(lines))), meta=(("a", "b"), *lines_entry(lines), ("c", "d"))))


@pytest.mark.parametrize("seed", range(10))
def test_lines_come_back_for_each_role(seed: int) -> None:
    random_ = random.Random(seed)
    some = [f"file.py:{number}" for number in range(4)]
    lines = [{event: random_.choice(some) for event in random_.sample(range(90), random_.randrange(6))} for _ in range(3)]
    assert kept([*lines, {1: "last.py:1"}]) == [*lines, {1: "last.py:1"}]


def test_of_no_line_nothing_is_kept() -> None:
    assert lines_entry([{}, {}]) == lines_entry([]) == ()
    assert kept([{}, {}]) == [{}, {}]


def test_a_line_of_many_requests_is_kept_once() -> None:
    [(name, text)] = lines_entry([dict.fromkeys(range(500), "train.py:7"), {3: "train.py:8", 4: "train.py:7"}])
    assert name == "lines"
    assert text.count("train.py:7") == text.count("train.py:8") == 1
    assert json.loads(text)[0] == ["train.py:7", "train.py:8"]
