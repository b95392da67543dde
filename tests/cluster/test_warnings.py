"""The filters of Python's warnings, which are a rank's own."""

import sys

import pytest

from emu.cluster.script_run import run_script
from emu.errors import RunError

BEGIN = """
import warnings, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
warnings.simplefilter("default")
"""


PLACE = "import warnings\ndef warn():\n    warnings.warn('told once')\n"


@pytest.fixture
def warner(tmp_path, monkeypatch):
    """A module that warns, as it is installed: the ranks share it."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "warner.py").write_text(PLACE)
    monkeypatch.syspath_prepend(place)
    yield
    sys.modules.pop("warner", None)


@pytest.fixture
def run(tmp_path):
    def run(text, n=2):
        script = tmp_path / "script.py"
        script.write_text(BEGIN + text)
        return run_script(script, [], n)[1]

    return run


def test_a_warning_is_an_error_only_on_the_rank_that_wants_so(run):
    assert not run(
        """
if rank != 0:
    warnings.filterwarnings("ignore")
before = list(warnings.filters)
dist.barrier()
if rank == 0:
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("rank 0 warns")
    assert len(caught) == 1
with warnings.catch_warnings():
    warnings.simplefilter("error")
    dist.barrier()
dist.barrier()
assert warnings.filters == before and ((warnings.filters[0][0] == "ignore") or rank == 0)
if rank == 1:
    warnings.simplefilter("error")
dist.barrier()
try:
    warnings.warn("mine")
    assert rank == 0
except UserWarning:
    assert rank == 1
"""
    )


def test_a_rank_catches_its_own_warnings(run):
    assert not run(
        """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for turn in range(3):
        dist.barrier()
        warnings.warn(f"{rank} {turn}")
dist.barrier()
assert [str(each.message) for each in caught] == [f"{rank} {turn}" for turn in range(3)], caught
"""
    )


@pytest.mark.usefixtures("warner")
def test_a_warning_that_another_rank_has_shown_is_still_an_error_where_a_rank_wants_so(run):
    with pytest.raises(RunError, match="rank 1: UserWarning: told once"):
        run(
            """
import warner
warnings.showwarning = lambda *_, **__: None
if rank == 1:
    warnings.filterwarnings("error", "told")
dist.barrier()
if rank == 0:
    warner.warn()
dist.barrier()
if rank == 1:
    warner.warn()
"""
        )


@pytest.mark.usefixtures("warner")
def test_what_is_shown_once_is_shown_once_though_other_ranks_ignore_it(run, capsys):
    assert not run(
        """
import warner
warnings.showwarning = lambda message, *_, **__: print(message)
if rank:
    warnings.filterwarnings("ignore")
for _ in range(3):
    dist.barrier()
    warner.warn()
"""
    )
    assert capsys.readouterr().out == "told once\n"
