"""PyTorch's parallel styles in a script on threads, whose imports are made while the ranks run."""

import sys
from pathlib import Path

import pytest

from emu.cluster.script_run import run_script
from tests.cluster.styles import STYLES, N

TESTS = Path(__file__).parents[1]


@pytest.fixture
def anew(monkeypatch):
    """Forget modules, so that what PyTorch and the styles compile when they are imported is compiled in the ranks."""
    for name in [name for name in sys.modules if name.startswith(("torch.distributed.optim", "tests.cluster.styles"))]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("style", ["zero", *(pytest.param(name, marks=pytest.mark.slow) for name in STYLES if name != "zero")])
def test_every_style_has_the_losses_of_one_process_in_a_script(anew, style, capsys):
    assert run_script(TESTS / "scripts" / "styles.py", [str(TESTS), style], N)[1] == 0
    assert capsys.readouterr().out.splitlines() == [style]
