"""The pages of the site that are no file of docs/: the README and its like, and notebooks, which are run.

Links are as GitHub has them, from file to file; here each leads to the page that the file becomes.
"""

import posixpath
import re
import sys
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from notebook_pages import page_of, run_notebook

ROOT = Path(__file__).resolve().parents[2]
# Files outside docs/, and the pages that they become.
PAGES = {
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "launch/data/kernels/README.md": "kernels.md",
}
FILES = {page: file for file, page in PAGES.items()}
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s:]+)(?=[)#])")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)  # of a table
_CODE = re.compile(r"`[^`]*`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the pictures beside them."""
    for file, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text(encoding="utf-8")))
        if "/" in file:
            for picture in (ROOT / file).parent.glob("*.png"):
                files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        ran = run_notebook(notebook) if config.extra["notebooks"] == "run" else nbformat.read(notebook, as_version=4)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page_of(ran, notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with links that lead to pages."""
    uri = page.file.src_uri
    source = FILES.get(uri, f"docs/{uri}")

    def led(link: re.Match[str]) -> str:
        target = _page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"])))
        return link["target"] if target is None else posixpath.relpath(target, posixpath.dirname(uri) or ".")

    # In a table GitHub needs a backslash before a bar in code; here it would be shown.
    plain = _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)
    return _LINK.sub(led, plain)


def _page_of(file: str) -> str | None:
    """Return the page that a file or a folder of the repository becomes; None where it is none."""
    if not (ROOT / file).exists():
        return None
    if file in PAGES:
        return PAGES[file]
    if (ROOT / file).is_dir():
        file += "/README.md"
    elif file.endswith(".ipynb"):
        file = f"{file.removesuffix('.ipynb')}.md"
    within = file.removeprefix("docs/")
    return within if within != file else posixpath.basename(file)
