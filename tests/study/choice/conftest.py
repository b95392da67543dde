"""Fixtures that tests of choices share."""

import pytest

from emu.study.choice import fastest as room
from emu.study.choice.fastest import fastest
from emu.study.timing import time_collective


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the schedules that are timed from now on."""
    names: list[str] = []

    def counted(job):
        names.append(job.name)
        return time_collective(job)

    monkeypatch.setattr(room, "time_collective", counted)
    fastest.cache_clear()
    return names
