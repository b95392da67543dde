"""The notebooks of the site: each runs from its first cell to its last, and asks no shell."""

import importlib
import re
from pathlib import Path

import matplotlib
import nbformat
import pytest

from tests.docs.site_files import NOTEBOOKS, notebook_pages

SHOWS = {"text/html", "image/png"}

# Each takes minutes on a busy machine: `make slow` runs those that the README does not begin with.
RUN = [pytest.param(path, marks=[pytest.mark.slow] * (path.stem != "start"), id=path.stem) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", RUN)
def test_a_notebook_runs_and_shows_what_it_finds(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Emu knows nothing before, and leaves nothing. matplotlib has its list of fonts, as it says so where that takes it long.
    importlib.import_module("matplotlib.font_manager")
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    notebook = notebook_pages.run_notebook(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell.outputs]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert sum(bool(SHOWS & output.get("data", {}).keys()) for output in outputs) >= 2
    page = notebook_pages.page_of(notebook, path)
    assert page.count('<div class="shown"') == sum(bool(SHOWS & output.get("data", {}).keys()) for output in outputs)
    assert str(tmp_path) not in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_it_showed_and_has_no_shell(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert notebook.cells[0].source.startswith("# ")  # the title of its page
    assert [cell.outputs for cell in code if cell.outputs or cell.execution_count is not None] == []
    lines = [line for cell in code for line in cell.source.splitlines()]
    assert [line for line in lines if re.match(r"\s*[!%]|.*\b(os\.system|subprocess|get_ipython)\b", line)] == []


def test_the_notebook_of_the_readme_has_fifteen_cells_of_code() -> None:
    notebook = nbformat.read(NOTEBOOKS[0].with_name("start.ipynb"), as_version=4)
    assert sum(cell.cell_type == "code" for cell in notebook.cells) == 15


def test_a_cell_that_fails_is_told(tmp_path: Path) -> None:
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(broken, tmp_path / "broken.ipynb")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebook_pages.run_notebook(tmp_path / "broken.ipynb")
