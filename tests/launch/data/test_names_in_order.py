"""Names of presets that are read from folders: in the order of the alphabet, in whatever order a file system lists them."""

import runpy
from pathlib import Path

import pytest

from launch.data import job_mixes, presets


@pytest.mark.parametrize(("module", "constant"), [(job_mixes, "MIXES"), (presets, "BOOKS")])
@pytest.mark.parametrize("reverse", [False, True])
def test_presets_are_named_in_the_order_of_the_alphabet(module, constant, reverse, monkeypatch):
    listed = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: sorted(listed(path, pattern), reverse=reverse))
    names = runpy.run_path(module.__file__)[constant]
    assert names == getattr(module, constant) == tuple(sorted(names))
    assert len(names) > 1
