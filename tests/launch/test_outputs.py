"""Every output of every command: refused before anything is computed, and nothing is lost where it fails at the end."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from emu import files
from emu.collective.algorithm import ALGORITHMS
from launch.cli.options.files import OutputFile
from tests.full import full_disk
from tests.launch.outputs import CASES, MEANWHILE, Case, script
from tests.launch.repeated import replaced
from tests.launch.test_flags import commands

READ = {"--config", "--import", "--data", "--from", "--like", "--log", "--ray-options"}
READ |= {"jobs", "trace", "first", "second", "script"}
OLD = b"what was there before"
READ |= {"--arrivals"}


def flag(param: click.Parameter) -> str:
    return max(param.opts, key=len)


def outputs(*, is_folder: bool) -> list[tuple[str, str]]:
    named = [(name, flag(p), p.type) for name, command in commands().items() for p in command.params]
    return [(name, word) for name, word, kind in named if isinstance(kind, OutputFile) and kind.is_folder is is_folder]


FILES, FOLDERS = outputs(is_folder=False), outputs(is_folder=True)


def case_of(command: str, option: str) -> Case:
    """The first that gives a command this output; of those of `MEANWHILE` any of the command."""
    found = [case for case in CASES if case.command == command]
    return next((case for case in found if option in case.options), found[0])


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = dict(ALGORITHMS)
    yield
    ALGORITHMS._filed.clear()
    ALGORITHMS._filed.update(before)


def test_every_output_of_every_command_is_tried() -> None:
    tried = {(case.command, option) for case in CASES for option in case.options}
    assert tried | MEANWHILE == {*FILES, *FOLDERS}


def test_every_path_that_is_no_output_is_one_that_is_read() -> None:
    paths = [flag(p) for command in commands().values() for p in command.params if isinstance(p.type, click.Path | click.File)]
    assert set(paths) == READ


def started(emu, command: str, words: tuple[str, ...]):
    """Run a command up to its beginning; return what it left, and whether it began."""
    body, seen = inspect.unwrap(commands()[command].callback or print).__code__, []

    def watch(frame, event, _) -> None:
        if frame.f_code is body:
            seen.append(event)
            raise RuntimeError("it began")

    sys.setprofile(watch)
    try:
        done = emu(*words)
    finally:
        sys.setprofile(None)
    return done, bool(seen)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.command)
def test_what_begins_is_seen_to_begin(emu, monkeypatch, case: Case) -> None:
    case.prepare(monkeypatch)
    assert started(emu, case.command, case.given({}))[1]


BAD = {
    "a folder that is not there": ("nowhere/NAME", "its folder is not there; make the folder, or name another file"),
    "below a file": ("file/NAME", "'file' is no folder; name another file"),
    "a folder": ("folder", "it is a folder; name a file in it"),
    "a folder that takes no file": ("/proc/NAME", "its folder cannot be written (No such file or directory); name a file in"),
}


# A folder takes a trace, as a file of each rank.
BAD_FILES = [(*file, bad) for file in FILES for bad in BAD if (file[1], bad) != ("--trace", "a folder")]


@pytest.mark.parametrize(("command", "option", "bad"), BAD_FILES)
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(emu, monkeypatch, command, option, bad) -> None:
    Path("file").write_bytes(OLD)
    Path("folder").mkdir()
    case, (path, why) = case_of(command, option), BAD[bad]
    case.prepare(monkeypatch)
    before = _files()
    path = path.replace("NAME", case.files[option])
    done, began = started(emu, command, case.given({option: path}))
    assert (done.code, done.out, done.err.count("\n"), began) == (2, "", 1, False)
    assert done.err.startswith(f"emu: {option}: cannot write {path!r}: {why}")
    assert _files() == before


@pytest.mark.parametrize("path", ["file", "file/new", "/proc/new"])
@pytest.mark.parametrize(("command", "option"), FOLDERS)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(emu, monkeypatch, command, option, path) -> None:
    Path("file").write_bytes(OLD)
    case = case_of(command, option)
    case.prepare(monkeypatch)
    done, began = started(emu, command, case.given({option: path}))
    assert (done.code, done.out, done.err.count("\n"), began) == (2, "", 1, False)
    assert done.err.startswith(f"emu: {option}: cannot write to {path!r}: ")
    assert Path("file").read_bytes() == OLD


def number(case: Case) -> str:
    return f"{case.command} {' '.join(case.options)}"


@pytest.mark.parametrize("case", CASES, ids=number)
def test_what_was_computed_is_printed_where_no_file_can_be_written_at_the_end(emu, monkeypatch, case: Case) -> None:
    case.prepare(monkeypatch)
    named = {option: Path(name) for option, name in case.files.items() if option != "--docs"}
    for path in named.values():
        path.write_bytes(OLD)
    replace = files.replace_file

    def on_a_full_disk(*given: object) -> None:
        with full_disk():
            replace(*given)

    monkeypatch.setattr(files, "replace_file", on_a_full_disk)
    done = emu(*case.given(case.files), *(() if case.after else ("--json",)))
    assert done.code == 1
    assert done.out if case.after else done.json is not None
    last = done.err.splitlines()[-1]
    assert last.startswith(f"emu: {case.says}")
    assert last.count(": cannot write") == last.count(": File too large") == len(case.options)
    assert all(f"{option}: cannot write '{name}" in last for option, name in case.files.items())
    assert all(path.read_bytes() == OLD for path in named.values())
    assert not [*Path().rglob(f"*{files.DRAFT}")]


@pytest.mark.parametrize("case", CASES, ids=number)
def test_the_same_is_written_where_there_is_room(emu, monkeypatch, case: Case) -> None:
    case.prepare(monkeypatch)
    done = emu(*case.given(case.files))
    assert (done.code, case.says in done.err) == (1 if case.says else 0, True)
    assert all(Path(name).stat().st_size for name in case.files.values())
    assert not [*Path().rglob(f"*{files.DRAFT}")]


STEP = case_of("estimate", "--html")


def refused(emu, *words: str) -> str:
    done, began = started(emu, "estimate", STEP.given({}) + words)
    assert (done.code, done.out, done.err.count("\n"), began) == (2, "", 1, False)
    return done.err.removeprefix("emu: ").strip()


def test_two_outputs_do_not_name_one_file(emu) -> None:
    Path("link").symlink_to("a.html")
    for other in ("a.html", "./a.html", "link", str(Path("a.html").resolve())):
        said = f"--html: cannot write {str(Path(other))!r}: --timeline names it, too; name another file"
        assert refused(emu, "--html", other, "--timeline", "a.html") == said
    assert emu(*STEP.given({}), "--timeline", "/dev/null", "--html", "/dev/null").code == 0


def test_no_output_takes_the_place_of_a_file_that_is_read(emu) -> None:
    Path("own.toml").write_text('device = "h100"\n')
    Path("own.py").write_text("no Python\n")
    same = "cannot write 'own.toml': --config names it, too; name another file"
    assert refused(emu, "--config", "own.toml", "--trace", "own.toml") == f"--trace: {same}"
    Path("own.toml").write_text('memory_bandwidth = "1TB/s"\npeak_flops = { bfloat16 = 1e12 }\n')
    assert refused(emu, "--device", "own.toml", "--trace", "own.toml") == f"--trace: {same.replace('config', 'device')}"
    script(pytest.MonkeyPatch())
    done = emu("run", "--ranks", "2", *STEP.words[-2:], "--trace", "script.py", "script.py")
    assert done.err == "emu: --trace: cannot write 'script.py': SCRIPT names it, too; name another file\n"


@pytest.mark.parametrize("command", ["calibrate", "show collective", "bench"])
def test_a_name_ends_as_what_reads_it_wants_it(emu, monkeypatch, command: str) -> None:
    case = next(each for each in CASES if each.command == command)
    case.prepare(monkeypatch)
    for option, name in case.files.items():
        if option == "--html":
            continue
        stem, _, ending = name.rpartition(".")
        other, ending = f"{stem}.pdf", ".csv or .jsonl, or -" if ending == "csv" else f".{ending}"
        done, began = started(emu, command, case.given({option: other}))
        said = f"emu: {option}: FILE must be a name that ends in {ending}, got {other!r}\n"
        assert (done.code, done.out, done.err, began) == (2, "", said, False)
        assert emu(*case.given({option: "/dev/null"})).code == 0


def test_an_output_of_a_configuration_is_checked_too(emu) -> None:
    Path("own.toml").write_text('html = "nowhere/x.html"\n')
    why = "its folder is not there; make the folder, or name another file"
    assert refused(emu, "--config", "own.toml") == f"--html: cannot write 'nowhere/x.html': {why}"


def test_a_table_that_has_no_file_is_printed(emu, monkeypatch) -> None:
    case = next(each for each in CASES if "--sweep" in each.words)
    table = emu(*case.given({})).out
    monkeypatch.setattr(files, "replace_file", lambda *_: [*Path("nowhere").iterdir()])
    done = emu(*case.given({"--out": "x.csv"}))
    said = done.err.splitlines()[-1]
    assert (done.code, done.out, said) == (1, table, "emu: --out: cannot write 'x.csv': No such file or directory")


def test_a_script_keeps_its_exit_code_where_its_trace_cannot_be_written(emu, monkeypatch) -> None:
    Path("script.py").write_text("import shutil, sys\nshutil.rmtree('there', ignore_errors=True)\nsys.exit(3)\n")
    Path("there").mkdir()
    done = emu("run", "--ranks", "2", *STEP.words[-2:], "--trace", "there/x.trace", "script.py")
    assert (done.code, done.err.splitlines()[-1]) == (
        3,
        "emu: --trace: cannot write 'there/x.trace': No such file or directory",
    )


def test_a_checkpoint_on_a_full_disk_says_so_and_the_last_whole_one_stays(emu) -> None:
    words = (*case_of("train", "--trace").given({}), "--checkpoint", "kept")
    assert emu(*words).code == 0
    with full_disk(20_000):
        done = emu(*replaced(words, "--steps", "2"))
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith(f"emu: --checkpoint: cannot write {str(Path('kept').resolve() / 'step-2')!r}: rank 0: ")
    assert "; 1 steps are kept, the last with loss " in last
    assert [path.name for path in Path("kept").iterdir()] == ["step-1"]


def command_line(*words: str, stdout: object = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    """The command as its own process, on a disk that is full for all that has more than 100 bytes."""
    code = (
        "import resource\nfrom launch.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\nmain()\n"
    )
    given = [sys.executable, "-c", code, *words]
    return subprocess.run(given, stdout=stdout, stderr=-1, text=True, check=False, timeout=120)  # type: ignore[call-overload, no-any-return]


def errors(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """Return the lines on stderr without what a slow machine says as it loads a command."""
    return [line for line in done.stderr.splitlines() if not line.startswith("emu: loading what ")]


XML = ("show", "collective", "all_reduce", "ring", "--ranks", "3", "--xml", "ring.xml", "--json")


def test_a_disk_that_is_full_loses_no_answer_and_no_older_file() -> None:
    Path("ring.xml").write_bytes(OLD)
    done = command_line(*XML)
    assert (done.returncode, errors(done)) == (1, ["emu: --xml: cannot write 'ring.xml': File too large"])
    assert json.loads(done.stdout)
    assert [(path.name, path.read_bytes()) for path in Path().iterdir()] == [("ring.xml", OLD)]


def test_an_answer_that_stdout_does_not_take_is_an_error_and_files_are_written_all_the_same(emu) -> None:
    with Path("/dev/full").open("w") as full:
        done = command_line("show", "topology", "ub-mesh:board", stdout=full)
    assert (done.returncode, errors(done)) == (1, ["emu: stdout: cannot print: No space left on device"])
    read, write = os.pipe()
    os.close(read)  # as by `| head` that has ended
    given = [sys.executable, "-c", "from launch.main import main\nmain()\n", *XML]
    with os.fdopen(write, "wb") as pipe:
        quiet = subprocess.run(given, stdout=pipe, stderr=-1, text=True, check=False, timeout=120)
    assert (quiet.returncode, errors(quiet)) == (1, [])
    assert Path("ring.xml").read_text().startswith("<algo")


def _files() -> list[Path]:
    """Return what is in the current folder, without the bytecode of what `--import` names."""
    return sorted(path for path in Path().iterdir() if path.name != "__pycache__")
