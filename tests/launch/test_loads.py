"""A command loads only what it needs, so that one that moves no data answers at once."""

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import launch

OF_TORCH = {f"torch.{name}" for name in ("_dynamo", "distributed.checkpoint", "distributed.fsdp", "distributed.pipelining")}
STEPS = {"emu.trace.formats.trace_formats", "emu.study.training.estimate", "emu.study.planning.search.search"}  # half a second
HEAVY = {"torch", "ray", "matplotlib", "rich", "numba", *OF_TORCH, *STEPS}
SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
BENCH = ("bench", "all_reduce", "--topology", SWITCH, "--size", "1KiB")
TRAIN = ("train", "--model", "llama-tiny", "--plan", "dp=2,tp=2", "--topology", SWITCH, "--steps", "1", "--seq", "16")
RUN = ("run", "--ranks", "2", "--topology", SWITCH, "script.py")
CODE = """
import json, sys
from launch.main import main
loaded = []
for args in json.loads(sys.argv[1]):
    try:
        main(args)
    except SystemExit as leave:
        assert not leave.code, leave.code
    loaded.append([*sys.modules])
print()
print(json.dumps(loaded))
"""


# Commands that may load the same, one after another in one process: what one has loaded, those after it have too.
@pytest.mark.parametrize(
    ("commands", "may"),
    [
        ([("list", "collectives"), ("list", "topologies")], set()),
        (
            [
                ("show", "topology", "ub-mesh:board"),
                ("show", "collective", "all_reduce", "ring", "--ranks", "4"),
                (*BENCH, "--timing-only"),
                (*BENCH, "--timing-only", "--algorithm", "all"),
                ("verify", "scatter", "--algorithm", "binomial", "--ranks", "4"),
            ],
            {"numba"},
        ),
        ([BENCH, RUN], {"numba", "torch", *STEPS}),
        ([(*TRAIN, "--global-batch", "2")], {"numba", "torch", "torch.distributed.fsdp", "rich", *STEPS}),
    ],
    ids=["what moves nothing", "what is timed or proved", "what moves tensors", "what trains"],
)
def test_a_command_loads_no_more_than_it_needs(commands: list[tuple[str, ...]], may: set[str], tmp_path: Path) -> None:
    script = "import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n"
    (tmp_path / "script.py").write_text(script)
    given = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(given, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for args, loaded in zip(commands, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert HEAVY.intersection(loaded) <= may, " ".join(args)


def late_names(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield modules that a function imports by `importlib` under a name, each with an attribute that it asks of it."""
    named = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call) and node.value.args:
            word, target = node.value.args[0], node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(node.value.func) == "importlib.import_module" and isinstance(word, ast.Constant):
                named[ast.unparse(target)] = word.value
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
            yield named[node.value.id], node.attr


def drawn_names(source: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and the function of each picture and page that a command writes, given as `module:function`."""
    for node in ast.walk(source):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy":
            for word in node.args:
                if isinstance(word, ast.Constant):
                    yield named_by(word.value)
        elif isinstance(node, ast.keyword) and node.arg == "drawn_by" and isinstance(node.value, ast.Constant):
            yield named_by(node.value.value)


def named_by(word: str) -> tuple[str, str]:
    """Return the module and the function that a word `module:function` names."""
    module, _, function = word.partition(":")
    return f"launch.show.{module}", function


def test_what_is_drawn_has_the_names_that_are_asked_of_it() -> None:
    """A picture or a page that is imported late and got another name would be missed by users alone."""
    files = (Path(launch.__file__).parent).rglob("*.py")
    asked = {each for path in files for each in drawn_names(ast.parse(path.read_text()))}
    assert ("launch.show.chart.step_chart", "parts_figure") in asked
    assert len(asked) >= 14
    assert [each for each in sorted(asked) if not hasattr(importlib.import_module(each[0]), each[1])] == []


def test_what_is_imported_late_has_the_names_that_are_asked_of_it() -> None:
    """No type checker sees these: a function that got another name would be missed by users alone."""
    files = (Path(launch.__file__).parent).rglob("*.py")
    functions = (f for path in files for f in ast.walk(ast.parse(path.read_text())) if isinstance(f, ast.FunctionDef))
    asked = {each for function in functions for each in late_names(function)}
    assert ("emu.study.prove.execution", "verify_execution") in asked
    assert [each for each in sorted(asked) if not hasattr(importlib.import_module(each[0]), each[1])] == []
