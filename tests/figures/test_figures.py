"""Every figure of many questions is the one that is kept."""

import pytest

from tests.figures.questions import kept, questions

QUESTIONS = questions()
# They take half a minute or more each on a busy machine; together two fifths of the time of all: `make slow` asks them.
LONG = frozenset(
    {
        "plan of gpt-tiny, software=pytorch",
        "plan of llama-tiny, software=pytorch",
        "plan of mixtral-tiny, software=megatron,dp=overlapped",
        "page of plan of llama-tiny, software=megatron",
        *(f"step {number}" for number in (300, 302)),
        *(f"files of step {number}" for number in (400, 420, 430, 450, 460, 540)),
        "small step 300",
        "bounds of space 5",
    }
)


def test_each_question_has_kept_figures():
    assert list(kept()) == list(QUESTIONS)
    assert QUESTIONS.keys() >= LONG


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in QUESTIONS])
def test_no_figure_has_changed(name):
    """If the change was meant, `python -m tests.figures` keeps the new figures; say in the commit which changed, and why."""
    now, before = QUESTIONS[name](), kept()[name]
    assert now.keys() == before.keys()
    changed = [field for field, digest in now.items() if digest != before[field]]
    assert not changed, f"{name}: {', '.join(changed)}"
