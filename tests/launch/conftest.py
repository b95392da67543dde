"""Run the command as a person does, in this process."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from emu.collective.algorithm import ALGORITHMS
from launch.main import main
from launch.show import progress


@dataclass(frozen=True)
class Done:
    """The end of a command: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)


@pytest.fixture
def emu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    monkeypatch.setattr(progress, "PATIENCE_S", 3600.0)  # on a busy machine it would say what takes long

    def run(*args: str) -> Done:
        with pytest.raises(SystemExit) as leave:
            main(list(args))
        assert isinstance(leave.value.code, int)
        return Done(leave.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def as_before() -> Iterator[None]:
    """Unfile the algorithms that a test has imported: tests that come later look at the catalogue."""
    before = dict(ALGORITHMS)
    yield
    ALGORITHMS._filed.clear()
    ALGORITHMS._filed.update(before)
