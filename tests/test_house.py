"""The words of the code: how sentences begin, and that a name of the product stands for one thing below each top folder."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import emu

ROOT = Path(emu.__file__).parents[1]
TOPS = ("emu", "launch", "collectives", "topologies", "models")
FILES = sorted(path.relative_to(ROOT) for top in TOPS for path in (ROOT / top).rglob("*.py"))
BESIDE = ("tests", "benchmarks")  # whose sentences are held like the product's, and whose names are not
# A sentence that begins so has no subject, or begins in the middle: it can be read only with the code beside it.
BEGINNING = re.compile(r"(Of|As|The same|It|Those|Whether|What)\b|\.\.\.")
HELPS = ("help", "short_help", "epilog")

# Public classes that share a name, each with the reason.
CLASSES: Mapping[tuple[str, str], str] = {
    ("models", "Config"): "the sizes by which each architecture describes its models",
}
# Modules that share a name, each with the reason; the folders of `launch/papers` have the same few modules.
MODULES: Mapping[tuple[str, str], str] = {}
PAPERS = ("launch", "papers")
# Modules that a paper's folder may have: its rows, what they are computed from, and its figures.
OF_A_PAPER = {
    *("report", "setting", "figures"),
    *("counts", "costs", "times", "training", "traffic", "waste", "orderings"),
}


def sentences(source: str) -> Iterator[str]:
    """Docstrings and help texts of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.keyword) and node.arg in HELPS:
            yield from (c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant) and isinstance(c.value, str))


def beginnings(source: str) -> list[str]:
    """The sentences of a module that begin as none may."""
    return [text.splitlines()[0] for text in sentences(source) if BEGINNING.match(text)]


def shared(named: Mapping[Path, list[str]]) -> dict[tuple[str, str], list[str]]:
    """Names that two files below one top folder have, with these files."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, names in named.items():
        for name in names:
            found[path.parts[0], name].append(str(path))
    return {key: files for key, files in found.items() if len(files) > 1}


def public_classes(source: str) -> list[str]:
    return [n.name for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("top", [*TOPS, *BESIDE])
def test_no_docstring_and_no_help_text_begins_in_the_middle(top):
    own = sorted(path.relative_to(ROOT) for path in (ROOT / top).rglob("*.py"))
    found = {str(path): beginnings(text_of(path)) for path in own}
    assert own
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ["Of one rank.", "As `lower`.", "What came.", "The same, cut.", "Whether it is.", "... or so."]
)
def test_a_sentence_that_begins_in_the_middle_is_seen_wherever_it_stands(line):
    for source in (f'"""{line}"""', f'class A:\n    """{line}"""', f'def f():\n    """{line}"""', f'option(help="{line}")'):
        assert beginnings(source) == [line]


def test_a_word_that_only_begins_like_one_of_them_is_none():
    assert not beginnings('"""Offsets of slots. Items that wait. Asynchronous requests."""')
    assert not beginnings('"""Iterate over all rows."""')


def test_no_two_public_classes_below_one_folder_share_a_name():
    found = shared({path: public_classes(text_of(path)) for path in FILES})
    assert {key: files for key, files in found.items() if key not in CLASSES} == {}
    assert set(CLASSES) <= set(found), "a reason that is needed no more"


def test_no_two_modules_below_one_folder_share_a_name():
    named = {path: [path.stem] for path in FILES if path.name != "__init__.py" and path.parts[:2] != PAPERS}
    found = shared(named)
    assert {key: files for key, files in found.items() if key not in MODULES} == {}
    assert set(MODULES) <= set(found), "a reason that is needed no more"


def test_folders_of_papers_share_their_names_with_one_another_alone():
    papers = {path.stem for path in FILES if path.parts[:2] == PAPERS and len(path.parts) > 3 and path.name != "__init__.py"}
    others = {path.stem for path in FILES if path.parts[0] == "launch" and path.parts[:2] != PAPERS}
    assert papers
    assert not papers & others


def test_folders_of_papers_have_the_same_few_modules():
    folders = sorted(path.parent for path in (ROOT / "launch" / "papers").glob("*/targets.csv"))
    found = {folder.name: {path.stem for path in folder.glob("*.py")} - {"__init__"} for folder in folders}
    assert len(found) >= 5
    assert {name: modules - OF_A_PAPER for name, modules in found.items() if modules - OF_A_PAPER} == {}
    assert all("report" in modules for modules in found.values())
    assert set.union(*found.values()) == OF_A_PAPER, "a name that is needed no more"


def test_names_that_two_files_share_are_seen():
    assert shared({Path("emu/a.py"): ["Part"], Path("emu/b/c.py"): ["Part"], Path("launch/d.py"): ["Part"]}) == {
        ("emu", "Part"): ["emu/a.py", "emu/b/c.py"]
    }


def in_the_code(glossary: str) -> Iterator[str]:
    """Yield the names in the last column of the glossary's tables."""
    for line in glossary.splitlines():
        columns = line.split("|")
        if len(columns) == 5:
            yield from re.findall(r"`([^`]+)`", columns[3])


def test_names_of_the_glossary_are_in_the_code():
    known = {token for path in FILES for token in re.findall(r"\w+", text_of(path))}
    found = [name for name in in_the_code((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")) if "*" not in name]
    assert len(found) > 50
    assert [name for name in found if not set(re.findall(r"\w+", name)) <= known] == []


def test_a_name_that_the_glossary_alone_has_is_seen():
    assert [*in_the_code("| turn | One pass. | `Turn`, `turns` |\n|---|---|---|")] == ["Turn", "turns"]


def test_files_that_a_contributor_is_sent_to_are_there():
    named = re.findall(r"`((?:emu|launch|tests|docs|collectives|topologies|models)/[\w/.]*)`", text_of(Path("CONTRIBUTING.md")))
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def other_names(source: str) -> list[str]:
    """The names of this project that a module imports under another name."""
    imports = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and str(n.module).startswith(TOPS))
    return [f"{a.name} as {a.asname}" for each in imports for a in each.names if a.asname not in (None, a.name)]


@pytest.mark.parametrize("top", [top for top in TOPS if top != "launch"])  # whose commands are called as what they answer
def test_nothing_is_imported_under_another_name(top):
    own = [path for path in FILES if path.parts[0] == top]
    assert {str(path): names for path in own if (names := other_names(text_of(path)))} == {}


def test_another_name_is_seen():
    assert other_names("from emu.fabric.lower import lower as laid, Graph as Graph\nfrom numpy import int64 as of\n") == [
        "lower as laid"
    ]


def test_no_file_has_more_than_400_lines():
    files = [*FILES, *(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))]
    assert {str(path): n for path in files if (n := len(text_of(path).splitlines())) > 400} == {}


LINES, PARAMETERS = 25, 6  # of a function
# Functions that may have more, each with the reason.
LARGER: Mapping[str, str] = {
    "emu/cluster/npu/batch_norm.py:_gather_stats_with_counts": "PyTorch's own signature",
    "emu/cluster/npu/batch_norm.py:_backward_elemt": "PyTorch's own signature",
    **dict.fromkeys(
        (
            "emu/backend/executor/executor.py:execute",
            "emu/cluster/script_run.py:run_script",
            "emu/cluster/threads/threads.py:__init__",
            "emu/collective/algorithm.py:collective",
            "emu/collective/schedule.py:build",
            "emu/study/live/elastic_job.py:train_with_checkpoints",
        ),
        "what a user of the library calls, with settings that are mostly left out",
    ),
    **dict.fromkeys(
        (
            "emu/model/operator.py:product",
            "emu/model/parts/expert_block.py:sparse_operators",
            "emu/model/stack/passes.py:element_wise",
        ),
        "the sizes of an operator, mostly left out",
    ),
}
# Decorators of functions whose parameters are the settings of a user.
CATALOGUE = ("topology", "planned", "collective", "question", "command", "argument", "option")


def functions(source: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int, int]]:
    """Functions of a module but those of the catalogue and of commands: lines without the docstring, and parameters."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {re.split(r"[(.]", ast.unparse(each).removeprefix("click."))[0] for each in node.decorator_list}
            first = node.body[0]
            doc = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) is not None else 0
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if not decorators & set(CATALOGUE):
                yield node, node.end_lineno - node.lineno + 1 - doc, len([n for n in names if n not in ("self", "cls")])


def too_large(source: str) -> list[str]:
    """The functions of a module that are too long, or have too many parameters."""
    return [node.name for node, lines, count in functions(source) if lines > LINES or count > PARAMETERS]


def test_no_function_is_longer_than_25_lines_or_has_more_than_6_parameters():
    found = {f"{path}:{name}" for path in FILES for name in too_large(text_of(path))}
    assert found - set(LARGER) == set()
    assert set(LARGER) <= found, "a reason that is needed no more"


def test_a_function_that_is_too_large_is_seen():
    body = "\n    pass" * (LINES - 1)
    assert not too_large(f"def f(a, b, c, d, e, g):{body}")
    assert too_large(f"def f(a):{body}\n    pass") == ["f"]
    assert too_large("def f(a, b, c, d, e, *, g, h): pass") == ["f"]
    assert not too_large("@topology('x')\ndef f(a, b, c, d, e, *, g, h): pass")
