"""Text: read, refused, and cut into the same sequences whatever the plan."""

import re

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.study.training.learn.program import batch, check_text, read_text


def test_the_default_is_english_text():
    text = read_text()
    assert len(text) > 100_000
    assert b"statement" in text


def test_a_file_is_its_bytes(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(256)))
    assert read_text(path) == bytes(range(256))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "none"
    with pytest.raises(InputError, match=rf"^--data: cannot read {re.escape(repr(str(path)))}: No such"):
        read_text(path)


def test_a_text_shorter_than_a_sequence_is_refused():
    with pytest.raises(InputError, match=r"^train: --data must be at least 129 bytes, one sequence, got 128$"):
        check_text(bytes(128), Plan(seq=128), 256)
    check_text(bytes(129), Plan(seq=128), 256)


def test_a_vocabulary_that_bytes_do_not_fit_is_refused():
    with pytest.raises(
        InputError, match=r"^train: the data are bytes, and the model's vocabulary has 100 tokens of the 256 needed$"
    ):
        check_text(bytes(999), Plan(), 100)


def test_sequences_follow_each_other_and_share_the_border_token():
    text = bytes(i % 251 for i in range(5000))
    plan = Plan(global_batch=4, seq=10)
    steps = np.concatenate([batch(text, plan, step) for step in range(3)])
    assert steps.shape == (12, 11)
    assert steps[:, :-1].reshape(-1).tolist() == list(text[:120])
    assert (steps[1:, 0] == steps[:-1, -1]).all()


def test_the_end_of_the_text_starts_again_without_leaving_it():
    text = bytes(range(13))
    found = batch(text, Plan(global_batch=8, seq=4), 5)
    assert all(bytes(row.astype(np.uint8)) in text for row in found)
