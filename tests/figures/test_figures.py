"""Every figure of many questions is the one that is kept."""

import pytest

from tests.figures.questions import kept, questions

QUESTIONS = questions()


def test_each_question_has_kept_figures():
    assert list(kept()) == list(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_figure_has_changed(name):
    """If the change was meant, `python -m tests.figures` keeps the new figures; say in the commit which changed, and why."""
    now, before = QUESTIONS[name](), kept()[name]
    assert now.keys() == before.keys()
    changed = [field for field, digest in now.items() if digest != before[field]]
    assert not changed, f"{name}: {', '.join(changed)}"
