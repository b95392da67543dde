import pickle

import numpy as np
import pytest

from emu.errors import EmuError, InputError, RunError, either, must_be
from emu.fabric.graph import TaskError
from emu.study.jobs.step_graphs.steady import TooManyTasksError


def test_bad_input_and_a_failed_run_exit_differently():
    assert (InputError.exit_code, RunError.exit_code) == (2, 1)
    assert issubclass(InputError, EmuError)
    assert issubclass(RunError, EmuError)


@pytest.mark.parametrize(
    "error", [must_be("torus", "dims", "1 or more", 0), TaskError("graph", "{} waits", 3), TooManyTasksError(9, 8)]
)
def test_an_error_comes_back_whole_from_another_process(error):
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.field, back.value) == (type(error), str(error), error.field, error.value)


def test_an_input_error_says_where_what_and_how_to_mend_it():
    error = must_be("torus", "dims", "1 or more", 0, "take a larger one")
    assert str(error) == "torus: dims must be 1 or more, got 0; take a larger one"
    assert str(must_be("torus", "dims", "1 or more", "x")) == "torus: dims must be 1 or more, got 'x'"


@pytest.mark.parametrize("got", ["two\nlines", np.eye(2), [1, 2]])
def test_an_input_error_is_one_line_whatever_was_given(got):
    assert "\n" not in str(must_be("here", "this", "that", got))


def test_words_of_which_one_fits_are_read_as_one_says_them():
    assert [either("abc"[:n]) for n in (1, 2, 3)] == ["a", "a or b", "a, b or c"]
