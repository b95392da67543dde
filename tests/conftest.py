"""Settings and fixtures that hold for every test."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from emu.study.choice import algorithm_cache

settings.register_profile("the same every time, however busy the machine", deadline=None, derandomize=True)
settings.load_profile("the same every time, however busy the machine")


def pytest_configure() -> None:
    """Let a test have one thread, before torch is loaded: there is a worker a core and one more, and threads that wait spin."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, as a worker that has started a Ray or another process waits for it much of the time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Make no tests that are slow where none is asked for: there are thousands, to be left out again by every worker."""
    marks = [mark.name for mark in getattr(obj, "pytestmark", ())] if callable(obj) else []
    config = collector.config
    left_out = "slow" in marks and "not slow" in config.option.markexpr and not any("::" in arg for arg in config.args)
    return [] if left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among thousands of tests while they are collected, nor after: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the README and with Ray, whose tests may take as long as hundreds of others: none is left at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py" and item.get_closest_marker("ray") is None)


@pytest.fixture(autouse=True)
def no_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep no choice between commands: a test finds nothing that another has left, and leaves nothing in the user's folder."""
    monkeypatch.setattr(algorithm_cache, "user_table", lambda: None)
    yield
    algorithm_cache.keep_in(None)
