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
    title, _, rest = "\n\n".join(map(_cell, notebook.cells)).partition("\n")
    return f'{title}\n\n<a href="{path.name}" download>This notebook as a file</a>\n{rest}\n'


def _cell(cell: NotebookNode) -> str:
    """Return a cell with what it shows."""
    if cell.cell_type == "markdown":
        return str(cell.source)
    printed = [output.text for output in cell.outputs if output.output_type == "stream"]  # in pieces, as they came
    shown = [_shown(output.data) for output in cell.outputs if output.output_type != "stream"]
    return "\n\n".join([f"```python\n{cell.source}\n```", *([_text("".join(printed))] if printed else []), *shown])


def _shown(data: NotebookNode) -> str:
    """Return what the last line of a cell shows: a view, a picture or text."""
    if "text/html" in data:
        return f'<div class="shown">\n{data["text/html"]}\n</div>'
    if "image/png" in data:
        return f'<div class="shown">\n<img alt="" src="data:image/png;base64,{"".join(data["image/png"].split())}">\n</div>'
    return _text(data["text/plain"])


def _text(text: str) -> str:
    """Return text as it is."""
    return f'<pre class="shown">{html.escape(text)}</pre>'
