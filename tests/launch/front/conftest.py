"""Fixtures of the tests of the library's front."""

from collections.abc import Iterator

import pytest

from emu.model.model import MODELS
from launch.front import inputs


@pytest.fixture
def own_models() -> Iterator[None]:
    """Forget the models that a test gives as sizes."""
    yield
    for name in [*inputs._GIVEN]:
        MODELS._filed.pop(name)
        inputs._GIVEN.pop(name)
