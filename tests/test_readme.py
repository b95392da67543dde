"""Every command and example of the README and of the guides in docs does what they say, but for the two make targets."""

import doctest
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.main import COMMANDS
from tests.forked import Fork, command, script
from tests.launch.repeated import replaced

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SESSIONS = [text for language, text in BLOCKS if language == "console" and not text.startswith("$ make")]
CHECKER = doctest.OutputChecker()


# A file that a guide shows under its name, a command with its output, or a program with its own.
STEP = re.compile(
    r"^`(?P<file>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)^```$"
    r"|^```console\n(?P<session>.*?)^```$"
    r"|^```python\n(?P<source>.*?)^```\n+```text\n(?P<printed>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if STEP.search(path.read_text()))
LONG = ("large.md",)  # collectives of up to 200,000 ranks
GUIDES = [pytest.param(path, marks=pytest.mark.slow if path.name in LONG else ()) for path in PAGES]


def test_the_table_of_the_readme_has_each_command():
    assert sorted(re.findall(r"^\| `emu (\w+)` \|", README, re.MULTILINE)) == sorted(COMMANDS)


def run(folder: Path, what: Callable[..., None], *given: str, fails: bool = False) -> str:
    done = Fork(folder, {"COLUMNS": "120"}, what, *given).end()
    assert (done.code in (1, 2)) if fails else not done.code, done.err
    # What is loading is told after two seconds, which it takes on a busy machine only.
    return done.out + re.sub("^emu: loading .*\n", "", done.err, flags=re.MULTILINE) if fails else done.out


def same(wanted: str, got: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    example = doctest.Example("", wanted)
    assert CHECKER.check_output(wanted, got, flags), CHECKER.output_difference(example, got, flags)


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: s.splitlines()[0].removeprefix("$ "))
def test_a_command_prints_what_the_readme_shows(session: str, tmp_path: Path) -> None:
    for step in STEP.finditer(README):
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["text"])
    follow(session, tmp_path)


def follow(session: str, folder: Path) -> None:
    for words, wanted in re.findall(r"^\$ emu (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        got = run(folder, command, *shlex.split(words), fails=re.search("^emu: ", wanted, re.MULTILINE) is not None)
        if wanted.strip():
            same(wanted, got)


def test_a_program_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    programs = [step for step in STEP.finditer(README) if step["source"]]
    assert programs
    for step in programs:
        (tmp_path / "program.py").write_text(step["source"])
        same(step["printed"], run(tmp_path, script, "program.py"))


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name)
def test_every_program_is_a_file_or_stands_above_what_it_prints(path: Path) -> None:
    text = path.read_text()
    followed = [step.span() for step in STEP.finditer(text)]
    programs = [block.start() for block in re.finditer(r"^ *```(python|console)$", text, re.MULTILINE)]
    loose = [at for at in programs if not any(begin <= at < end for begin, end in followed)]
    assert [text[at : at + 100] for at in loose] == []


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_guide_can_be_followed_step_by_step(path: Path, tmp_path: Path) -> None:
    for step in STEP.finditer(path.read_text()):
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["text"])
        elif step["session"]:
            follow(step["session"], tmp_path)
        else:
            (tmp_path / "program.py").write_text(step["source"])
            same(step["printed"], run(tmp_path, script, "program.py"))


def test_the_picture_of_the_readme_is_there() -> None:
    for target in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / target).stat().st_size > 1000


def demo() -> list[list[str]]:
    """The words of the demo's commands; each is told before it begins."""
    target = re.search(r"^demo: .*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target is not None
    told, commands = target[1].splitlines()[::2], target[1].splitlines()[1::2]
    assert [("echo" in line, "$(BIN)/emu" in words) for line, words in zip(told, commands, strict=True)] == [(True, True)] * 3
    return [shlex.split(words)[1:] for words in commands]


# Of two options of a name the last counts.
def test_the_demo_estimates_a_real_model_and_what_it_trains_fits(tmp_path: Path) -> None:
    *trained, estimated = demo()
    for words in trained:
        assert "steps must be 1 or more, got 0" in run(tmp_path, command, *replaced(words, "--steps", "0"), fails=True)
    assert re.search(r"^MFU +0\.\d", run(tmp_path, command, *replaced(estimated, "--global-batch", "128")), re.MULTILINE)


@pytest.mark.slow
def test_the_demo_trains(tmp_path: Path) -> None:
    for words in demo()[:2]:
        printed = run(tmp_path, command, *replaced(words, "--steps", "2", "--seq", "16", "--global-batch", "4"))
        assert "of one process's" in printed
