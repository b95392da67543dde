import pytest

from tests.trace.laid import Words


@pytest.fixture
def words():
    return Words()
