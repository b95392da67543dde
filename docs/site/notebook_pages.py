"""The page of a notebook: its text and its code as they are, and what its cells show when they are run."""

import html
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

CELL_S = 600  # seconds after which a cell has failed
QUIET = ["--log-level=ERROR"]  # a kernel tells that others on this machine could listen to it


def run_notebook(path: Path) -> NotebookNode:
    """Return a notebook with what its cells show, run from the first to the last in an empty folder.

    Raises:
        CellExecutionError: a cell has failed.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources=where, extra_arguments=QUIET).execute()
    return notebook


def page_of(notebook: NotebookNode, path: Path) -> str:
    """Return the page of a notebook as Markdown; the file at `path` is offered beside it."""
    title, *rest = (_cell(cell) for cell in notebook.cells)
    return "\n\n".join([title, f'<a href="{path.name}" download>This notebook as a file</a>', *rest]) + "\n"


def _cell(cell: NotebookNode) -> str:
    """Return a cell with what it shows."""
    if cell.cell_type == "markdown":
        return str(cell.source)
    return "\n\n".join([f"```python\n{cell.source}\n```", *map(_output, cell.outputs)])


def _output(output: NotebookNode) -> str:
    """Return what a cell shows: a view, a picture or text."""
    shown = output.get("data", {})
    if "text/html" in shown:
        return f'<div class="shown" markdown="0">\n{shown["text/html"]}\n</div>'
    if "image/png" in shown:
        picture = shown["image/png"].replace("\n", "")
        return f'<div class="shown" markdown="0">\n<img alt="" src="data:image/png;base64,{picture}">\n</div>'
    return f'<pre class="shown">{html.escape(shown.get("text/plain", output.get("text", "")))}</pre>'
