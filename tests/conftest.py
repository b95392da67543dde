"""What holds for every test."""

from collections.abc import Iterator

import pytest

from emu.study.choice import kept


@pytest.fixture(autouse=True)
def no_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Between commands: a test is not to find what another has left, nor to leave anything in the user's folder."""
    monkeypatch.setattr(kept, "users", lambda: None)
    yield
    kept.keep_in(None)
