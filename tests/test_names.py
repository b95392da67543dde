"""The library names no algorithm, system or model: what it knows of them is what the catalogue files."""

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

import emu
from emu.collective.algorithm import ALGORITHMS
from emu.model.model import MODELS
from emu.topology.catalogue import TOPOLOGIES

ROOT = Path(emu.__file__).parent
ROOMS = sorted({ROOT / path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py")})
# Words of the field as well (`itertools.pairwise`): only as strings of their own do they name a thing.
ORDINARY = {"ring", "direct", "pairwise", "exchange", "torus", "simple", "flat"}
PARTS = {"switch"}  # what one buys to build a machine, and the name of the simplest one


def catalogue_names() -> set[str]:
    filed = {a.name for _, a in ALGORITHMS} | {name for name, _ in TOPOLOGIES} | {name for name, _ in MODELS}
    files = [p.stem for folder in ("collectives", "topologies", "models") for p in (ROOT.parent / folder).glob("[!_]*.py")]
    return (filed | set(files) | {name.partition(":")[0] for name in filed}) - PARTS


def strings_and_identifiers(path: Path) -> tuple[set[str], set[str]]:
    """Strings other than docstrings, and names; prose may say what it likes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    strings = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in prose
    }
    with tokenize.open(path) as file:
        names = {token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME}
    return strings, names


def offences(strings: set[str], identifiers: set[str], names: set[str]) -> set[str]:
    """Names that are a string, stand in one as a word of their own, or are an identifier or a part of one."""
    words = "\n".join(strings | identifiers)
    return (names & strings) | {name for name in names - ORDINARY if _spelt(name).search(words)}


@cache
def _spelt(name: str) -> re.Pattern[str]:
    spelling = "[-_:]?".join(map(re.escape, re.split("[-_:]", name)))
    return re.compile(rf"(?<![a-z0-9]){spelling}(?![a-z0-9])", re.IGNORECASE)


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_the_library_names_nothing_that_the_catalogue_files(room):
    names = catalogue_names()
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    found = {str(path): offences(*strings_and_identifiers(path), names) for path in files}
    assert {path: named for path, named in found.items() if named} == {}


@pytest.mark.parametrize(
    ("strings", "identifiers"),
    [({"ring"}, set()), ({"the ub-mesh rack"}, set()), (set(), {"ub_mesh"}), (set(), {"UBMesh"}), (set(), {"build_ub_mesh"})],
)
def test_a_name_of_the_catalogue_would_be_seen(strings, identifiers):
    assert offences(strings, identifiers, {"ring", "ub-mesh"})


def test_words_of_the_field_are_no_names():
    assert not offences({"a ring of links", "string"}, {"ring", "switches", "direct_links"}, {"ring", "switch", "direct"})


def test_the_catalogue_has_names_of_every_kind():
    names = catalogue_names()
    assert all(names & {name for name, _ in kind} for kind in (TOPOLOGIES, MODELS))
    assert names >= {a.name for _, a in ALGORITHMS}
