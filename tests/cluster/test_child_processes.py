"""Processes that ranks have started end, also one that a look at all processes misses, as its parent ends at that moment."""

import subprocess

import psutil
import pytest

from emu.cluster import child_processes


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as started:
        yield psutil.Process(started.pid)
        started.kill()


def test_a_process_that_one_look_misses_is_ended_by_the_next(sleeper, monkeypatch):
    other, looks = psutil.Process(), iter([{"first"}, set(), {"missed"}])

    class Ended:
        def terminate(self):
            pass

    def look(but):
        seen = next(looks, None)
        if seen == {"first"}:
            return {Ended()}
        return {sleeper} if seen == {"missed"} else set()

    monkeypatch.setattr(child_processes, "_descendants", look)
    child_processes.end_all(but=[other])
    assert sleeper.wait(10) is not None
    assert next(looks, None) is None


def test_nothing_is_looked_for_twice_where_nothing_was_started(monkeypatch):
    looks = []
    monkeypatch.setattr(child_processes, "_descendants", lambda _: looks.append(1) or set())
    child_processes.end_all()
    assert len(looks) == 1
