"""`--config FILE.toml` of every command: a file that holds any of its options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from emu.collective.algorithm import ALGORITHMS
from launch.main import COMMANDS
from launch.main import emu as group

SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
OTHER = "switch:n=4,bandwidth=25GB/s,latency=500ns"
SCENARIO = f'topology = ["{SWITCH}", "{OTHER}"]\nsize = "64KiB"\nalgorithm = "ring"\ntiming_only = true\n'


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "scenario.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_file_says_what_the_command_line_would(emu: Callable[..., Any], written: Callable[[str], str]) -> None:
    by_file = emu("bench", "all_reduce", "--config", written(SCENARIO), "--json")
    words = ("--topology", SWITCH, "--topology", OTHER, "--size", "64KiB", "--algorithm", "ring", "--timing-only")
    by_line = emu("bench", "all_reduce", *words, "--json")
    assert by_file.code == 0
    rows, wanted = ([row["time_s"] for row in done.json] for done in (by_file, by_line))
    assert rows == wanted
    assert len(rows) == 2


def test_the_command_line_wins(emu: Callable[..., Any], written: Callable[[str], str]) -> None:
    done = emu("bench", "all_reduce", "--size", "1KiB", "--algorithm", "direct", "--config", written(SCENARIO), "--json")
    assert [(row["size_bytes"], row["algorithm"]) for row in done.json] == [(1024, "direct")] * 2


def test_a_file_may_name_the_users_own_files(emu: Callable[..., Any], written: Callable[[str], str], tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    lines = ("import numpy as np", "from emu import Schedule, Sends, collective", "", '@collective("scatter", "own")')
    own.write_text("\n".join((*lines, "def own(n, root=0):", "    return Schedule.build(n, n, [])")))
    try:
        done = emu("list", "collectives", "--config", written(f"import = '{own}'\njson = true"))
        assert any(row["algorithm"] == "own" for row in done.json)
    finally:
        ALGORITHMS._filed.pop("scatter/own", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sise = 3", "registry: no option of `emu bench` is called 'sise'; did you mean size"),
        ("config = 'x'", "no option of `emu bench` is called 'config'"),
        ("operation = 'x'", "no option of `emu bench` is called 'operation'"),
        ("timing-only = 1", "--config: timing-only must be true or false, got 1"),
        ("ranks = [1, 2]", "--config: ranks must be a word or a number, got [1, 2]"),
        ("topology = [1, [2]]", "--config: topology must be words or numbers, got [1, [2]]"),
        ("topology = {n = 2}", "--config: topology must be words or numbers"),
        ("= 3", "no TOML: Invalid statement"),
        ("ranks = 1.5\ntopology = 'x'", "Invalid value for '--ranks': '1.5' is not a valid integer"),
    ],
)
def test_what_a_file_cannot_say_is_one_line(
    emu: Callable[..., Any], written: Callable[[str], str], text: str, message: str
) -> None:
    done = emu("bench", "all_reduce", "--config", written(text))
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err


def test_a_file_that_is_not_there_is_one_line(emu: Callable[..., Any]) -> None:
    done = emu("list", "models", "--config", "nowhere.toml")
    assert (done.code, done.err) == (2, "emu: --config: cannot read 'nowhere.toml': No such file or directory\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_found_twice_has_the_option_once(name: str) -> None:
    found = [group.get_command(click.Context(group), name) for _ in range(2)][1]
    each = list(found.commands.values()) if isinstance(found, click.Group) else [found]
    assert all([param.name for param in command.params if command].count("config") == 1 for command in each if command)
