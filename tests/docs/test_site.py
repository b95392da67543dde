"""The site: every link leads somewhere, nothing comes from a network, and what is looked for is found."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import emu
from emu import register
from launch.main import COMMANDS
from launch.main import emu as shell
from tests.docs.site_files import NOTEBOOKS, ROOT

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)")
COMMAND = re.compile(r"^(?:\S+=\S+ )?emu ((?:.|\\\n|\n  --)*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the notebooks' views; a link that leads nowhere ends its build."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "EMU_DOCS_NOTEBOOKS": "shown", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_menu_of_the_start_page(site: Path) -> None:
    start = (site / "index.html").read_text()
    assert "Emu emulates a training cluster that you do not have" in start
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html"}
    assert len(pages) > 30
    assert {page for page in pages if f'href="{page}"' not in start} == set()
    assert {f"notebooks/{path.stem}.html" for path in NOTEBOOKS} <= pages
    assert {f"notebooks/{path.name}" for path in NOTEBOOKS} <= {str(path.relative_to(site)) for path in site.rglob("*.ipynb")}


def test_code_in_a_table_has_no_backslash_that_only_github_needs(site: Path) -> None:
    assert "<code>cp_comm=p2p|all_gather</code>" in (site / "training.html").read_text()


def test_nothing_is_loaded_from_a_network(site: Path) -> None:
    loaded = {target for path in site.rglob("*.html") for target in LOADED.findall(path.read_text())}
    assert any(target.endswith(".css") for target in loaded)
    assert {target for target in loaded if re.match("(https?:)?//", target)} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(\"?https?:", styles) == []


def test_a_page_takes_the_colours_that_its_reader_likes(site: Path) -> None:
    start = (site / "index.html").read_text()
    assert {"(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"} <= set(
        re.findall(r'data-md-color-media="(.*?)"', start)
    )


def test_every_name_of_the_library_has_its_place_on_a_page_of_the_api(site: Path) -> None:
    pages = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    names = [f"emu.{name}" for name in emu.__all__ if name not in ("register", "collective")]
    names += [f"emu.register.{name}" for name in register.__all__]
    assert {name for name in names if f'id="{name}"' not in pages} == set()
    told = html.unescape(re.sub("<[^>]+>", "", pages))
    assert "Prove that collectives are correct, and compare their times with the claims of their papers." in told
    assert "step_time_s" in told


def test_the_search_knows_the_pages_and_the_api(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {doc["location"].partition("#")[0] for doc in index["docs"] if "bisection" in doc["text"]}
    assert {"fidelity.html", "glossary.html"} <= found
    assert any(doc["location"] == "api/questions.html#emu.bench" for doc in index["docs"])


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; on Debian: apt-get install chromium")
def test_a_browser_finds_what_is_looked_for_in_a_site_that_no_server_serves(site: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]
    place = f"{(site / 'index.html').as_uri()}?q=bisection"
    dom = subprocess.run([BROWSER, *words, "--dump-dom", place], capture_output=True, text=True, check=True, timeout=240).stdout
    found = re.findall(r'href="([^"]*)"[^>]*class="md-search-result__link"', dom)
    assert found
    assert any("fidelity.html" in link for link in found)


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_commands_that_are_shown_without_what_they_print_are_commands() -> None:
    found = [
        (path.name, words.replace("\\\n", " ").split())
        for path in PAGES
        for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
        for words in COMMAND.findall(block)
    ]
    assert len(found) > 10
    for page, words in found:
        name, *options = words
        assert name in COMMANDS, (page, words)
        command = shell.get_command(click.Context(shell), name)
        known = {option for parameter in command.params for option in parameter.opts}
        own = next((i for i, word in enumerate(options) if word.endswith(".py") or word in ("-", "-m")), len(options))
        given = {word for word in options[:own] if word.startswith("--")}
        assert given <= known, (page, words)
