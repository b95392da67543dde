"""Benchmarks are run by hand, and so seldom: what they import from the product is there."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import benchmarks

FILES = sorted(Path(benchmarks.__path__[0]).rglob("*.py"))
TOPS = ("emu", "launch", "collectives", "topologies", "models", "benchmarks")


def gone(source: str) -> list[str]:
    """The names that a module imports from the product and that are not there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in TOPS:
            try:
                module = importlib.import_module(str(node.module))
            except ModuleNotFoundError:
                found.append(str(node.module))
                continue
            names = [a.name for a in node.names if not hasattr(module, a.name)]
            found += [f"{node.module}.{name}" for name in names if not is_module(f"{node.module}.{name}")]
    return found


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(path.parents[1])))
def test_what_a_benchmark_imports_is_there(path):
    assert gone(path.read_text(encoding="utf-8")) == []


def test_what_is_gone_is_seen():
    assert gone("from emu.fabric.lower import lower, laid\nfrom emu.laid import lower\n") == [
        "emu.fabric.lower.laid",
        "emu.laid",
    ]
