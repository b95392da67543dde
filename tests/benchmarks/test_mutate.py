"""The faults drawn are such as people make; the tests of a copy tell them, and nothing from before a fault is left there."""

import ast
from collections import defaultdict
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from coverage import CoverageData

from benchmarks.mutate import __main__ as mutate
from benchmarks.mutate.executing_tests import Record, in_order, seconds_of_tests, statement_lines
from benchmarks.mutate.faults import Parsed, drawn
from benchmarks.mutate.trial import ALSO, Copy, compiled, seeing

ROOT = Path(__file__).parents[2]
MODULE = Path("tiny/sums.py")
SEEN, UNSEEN, COUNT = 5, 9, 13  # lines
SOURCE = '''"""Sums."""


def over(values, least):
    return [v for v in values if v > least]


def unseen(count):
    return count - 1


def down(n):
    while n > 0:
        n -= 1
    return n
'''
TESTS = """
from tiny.sums import down, over

def test_over():
    assert over([1, 3, 5], 3) == [5]

def test_down():
    assert down(3) == 0
"""
HALVES = {"tiny/sums.py": "STEP = 2\n"} | {
    "tiny/jit.py": "import numba\nfrom tiny.sums import STEP\n\n@numba.njit(cache=True)\ndef step():\n    return STEP\n",
    "tests/tiny/test_jit.py": "from tiny.jit import step\n\ndef test_step():\n    assert step() == 2\n",
}


def repository(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def tiny(tmp_path):
    """A repository of one module, half of which is tested."""
    kept = {".gitignore": "__pycache__/\n*.log\n", "a.log": "left"}
    return repository(tmp_path / "tiny", {"tiny/sums.py": SOURCE, "tests/tiny/test_sums.py": TESTS, **kept})


def faults_of(root, line):
    return list(mutate.faults([f"{MODULE}:{line}"], 1, root))


def pieces(folder, source):
    """Return what may stand for each piece of a source; places are counted in bytes."""
    (folder / "one.py").write_text(source)
    found = defaultdict(set)
    for place in Parsed(folder, Path("one.py")).places({"a": ["int"], "b": ["int"], "c": ["str"]}):
        for fault in place.variants:
            found[source.encode()[fault.start : fault.end].decode()].add(fault.text)
    return found


@pytest.mark.parametrize(
    ("source", "piece", "others"),
    [
        ("a < b", "a < b", {"(a <= b)", "(a > b)"}),
        ("a // b", "a // b", {"(-(-a // b))", "(b // a)"}),
        ("c * (a - b)", "a - b", {"(a + b)", "(b - a)"}),
        ("a and b or c", "a and b", {"(a or b)", "a", "b"}),
        ("not a", "not a", {"a"}),
        ("a if b else c", "a if b else c", {"(c if b else a)", "a", "c"}),
        ("x = 4", "4", {"3", "5", "8"}),
        ("x = True", "True", {"False"}),
        ("x = 1.5", "1.5", {"3.0", "0.75"}),
        ("a[i:j]", "i:j", {"i + 1:j", "i:j - 1"}),
        ("a[::-1]", "::-1", {":"}),
        ("np.minimum(a, out=c)", "np.minimum(a, out=c)", {"np.maximum(a, out=c)", "np.minimum(a)", "pass"}),
        ("x = f(a, b, *c)", "f(a, b, *c)", {"f(b, a, *c)"}),
        ("x = max(a, b, key=c)", "max(a, b, key=c)", {"min(a, b, key=c)", "max(a, b)"}),
        ("x = sorted(a)", "sorted(a)", {"a"}),
        ("[v for v in a if v]", "[v for v in a if v]", {"[v for v in a]", "pass"}),
        ("for v in a:\n    f(v)", "a", {"list(a)[1:]", "list(a)[:-1]"}),
        ("for v in a:\n    f(v)", "f(v)", {"pass"}),
        ("if a:\n    b()", "a", {"(not a)", "True", "False"}),
        ("for v in a:\n    break", "break", {"continue"}),
        ("row.a = row.b", "row.a = row.b", {"pass"}),
        ("f(row.a, row.c, row.b)", "row.a", {"row.b"}),
        ("é = f'{x * 2} é'", "f'{x * 2} é'", {"f'{x / 2} é'", "f'{x * 1} é'", "f'{x * 3} é'", "f'{x * 4} é'"}),
    ],
)
def test_a_piece_may_be_wrong_as_people_get_it_wrong(tmp_path, source, piece, others):
    assert pieces(tmp_path, source)[piece] - ({"pass"} - others) == others


@pytest.mark.parametrize(
    "source",
    ["def f(a: 'int | 3' = None) -> 'x[4]':\n    '''9'''", "x = dict(strict=True, frozen=not True)", "x = y", "import a"],
)
def test_what_changes_no_result_is_left_alone(tmp_path, source):
    assert not pieces(tmp_path, source)


def test_every_fault_of_a_file_is_another_program_on_the_line_that_is_told():
    path = Path("emu/units.py")
    source = (ROOT / path).read_bytes()
    found = list(drawn(ROOT, [path], 1))
    assert len(found) > 100
    for fault in found:
        changed = fault.apply(source)
        compile(changed, path, "exec")
        assert changed.splitlines()[: fault.line - 1] == source.splitlines()[: fault.line - 1]
        assert changed.splitlines()[fault.line - 1] != source.splitlines()[fault.line - 1]


def test_a_seed_draws_the_same_and_goes_on_to_when_other_lines_change(tiny):
    before = [fault.diff(tiny) for fault in drawn(tiny, [MODULE], 1)]
    assert before == [fault.diff(tiny) for fault in drawn(tiny, [MODULE], 1)]
    assert before != [fault.diff(tiny) for fault in drawn(tiny, [MODULE], 2)]
    (tiny / MODULE).write_text(
        SOURCE.replace("Sums.", "Sums.\n\nOf numbers.").replace("def down(n):", "def down(n):\n    n = abs(n)")
    )
    after = [fault.diff(tiny) for fault in drawn(tiny, [MODULE], 1)]
    assert [diff for diff in after if diff in before] == before


def test_each_kind_of_fault_has_its_turn():
    kinds = [
        fault.kind
        for fault in islice(drawn(ROOT, [Path("emu/trace/report/report.py"), Path("emu/trace/matching/matcher.py")], 1), 12)
    ]
    assert len(set(kinds)) == 12


def edited_meanwhile(results, path):
    """Yield the results while a person changes the checkout, which must not matter to the copies."""
    before = path.read_text()
    for each in results:
        path.write_text("# other lines\n" + before)
        yield each
    path.write_text(before)


def test_a_fault_that_a_test_sees_is_caught_and_one_that_none_sees_survives(tiny, capsys):
    seen, unseen = faults_of(tiny, SEEN), faults_of(tiny, UNSEEN)[:1]
    chosen = [*(fault for fault in seen if fault.kind in ("comparison", "dropped filter")), *unseen]
    results = mutate.tried(chosen, [seeing(tiny, MODULE)] * 3, 2, tiny)
    assert mutate.score(edited_meanwhile(results, tiny / MODULE), 3) == 1
    out, err = capsys.readouterr()
    assert out.count(f"caught {MODULE}:{SEEN}  ") == 2
    assert out.count("tests/tiny/test_sums.py::test_over (") == 2
    assert f"3/3 SURVIVED {MODULE}:{UNSEEN}  {unseen[0].kind}\n    -    return count - 1\n    +    return " in out
    assert "2 of 3 faults caught, 66.7 % (0 by the time limit); 1 survived" in out
    assert "without a fault, tests/tiny/test_sums.py tests/tiny pass in" in err
    assert (tiny / MODULE).read_text() == SOURCE
    assert not list(tiny.rglob("__pycache__"))


def test_tests_that_fail_without_a_fault_are_named(tiny):
    (tiny / MODULE).write_text(SOURCE.replace(">", "<"))
    with pytest.raises(SystemExit, match=r"must pass without a fault, but tests/tiny/test_sums\.py::test_over failed"):
        list(mutate.tried([], [seeing(tiny, MODULE)], 1, tiny))
    assert list(mutate.tried([], [seeing(tiny, MODULE)], 1, tiny, limit_s=9)) == []  # no test runs before the faults


def test_a_fault_whose_recorded_tests_are_gone_is_tried_by_the_tests_of_its_file(tiny):
    """Pytest ends with a usage error where a name is not there, which is no test that fails."""
    seen = next(fault for fault in faults_of(tiny, SEEN) if fault.kind == "comparison")
    [result] = mutate.tried([seen], [["tests/tiny/test_sums.py::test_gone"]], 1, tiny, limit_s=60)
    assert result.outcome.failed == "tests/tiny/test_sums.py::test_over"


@pytest.mark.parametrize("tests", ["", "import os\nos._exit(7)\n"])  # no test at all; a process that dies
def test_a_fault_that_no_test_was_run_for_is_not_caught(tiny, tests, capsys):
    (tiny / "tests/tiny/test_sums.py").write_text(tests)
    fault = faults_of(tiny, SEEN)[0]
    assert mutate.score(mutate.tried([fault], [seeing(tiny, MODULE)], 1, tiny, limit_s=60), 1) == 1
    out = capsys.readouterr().out
    assert f"1/1 NOT TRIED {MODULE}:{SEEN}" in out
    assert "0 of 0 faults caught (0 by the time limit); 0 survived; 1 not tried, which count for neither" in out


@pytest.mark.parametrize("file", ["tests/conftest.py", "tests/tiny/test_sums.py"])
def test_a_file_of_tests_that_cannot_be_imported_sees_a_fault(tiny, tmp_path, file):
    (tiny / file).write_text("import nothing_of_this_name\n")
    outcome = Copy(tiny, tmp_path / "to").run(seeing(tiny, MODULE))
    assert outcome.failed.endswith(file)
    assert not outcome.untried


def test_a_fault_that_never_ends_is_ended(tiny, tmp_path):
    copy = Copy(tiny, tmp_path / "to")
    assert not (copy.root / "a.log").exists()
    endless = next(fault for fault in faults_of(tiny, COUNT + 1) if fault.kind == "left out")
    with copy.faulty(endless):
        assert copy.run(seeing(tiny, MODULE), 4).failed == "time limit"
    assert (copy.root / MODULE).read_text() == SOURCE


def test_machine_code_from_before_a_fault_is_not_used(tmp_path):
    copy = Copy(repository(tmp_path / "from", HALVES), tmp_path / "to")
    assert compiled(copy.root, MODULE)
    assert not copy.run(["tests/tiny"]).failed
    with copy.faulty(next(drawn(copy.root, [MODULE], 1))):
        assert copy.run(["tests/tiny"], afresh=True).failed == "tests/tiny/test_jit.py::test_step"


def test_a_known_fault_without_effect_is_told_and_passed_over(tmp_path, monkeypatch, capsys):
    first, second = islice(mutate.faults(["emu/errors.py", "emu/units.py"], 1), 2)
    old, new = first.words(ROOT)
    (tmp_path / "known.toml").write_text(f"[[fault]]\npath='''{first.path}'''\nold='''{old}'''\nnew='''{new}'''\nwhy='a tie'\n")
    monkeypatch.setattr(mutate, "known", lambda read=mutate.known: read(tmp_path / "known.toml"))
    assert mutate.main(["--list", "--count", "1", "emu/errors.py", "emu/units.py"]) == 0
    out = capsys.readouterr().out
    assert f"without effect, left out: {first.path}:{first.line}" in out
    assert "    a tie\n" in out
    assert f"fault {second.path}:{second.line}" in out


def test_what_is_known_to_be_without_effect_still_stands_in_the_files():
    for path, old, _ in mutate.known():
        assert " ".join(old.split()) in " ".join((ROOT / path).read_text().split()), f"{path}: {old}"


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("emu/units.py", ["tests/test_units.py"]),
        ("emu/inner/one.py", ["tests/inner/test_one.py", "tests/inner"]),
        ("emu/inner/other.py", ["tests/inner"]),
        ("launch/cli/bench.py", ["tests/launch/test_bench.py", "tests/launch/test_run.py", "tests/launch/show/text"]),
        ("launch/cli/replay.py", ["tests/launch/test_bench.py", "tests/launch/test_run.py", "tests/launch/show/text"]),
        ("launch/show/topology_picture.py", ["tests/launch/show", "tests/figures", "tests/launch/test_bench.py"]),
        (
            "launch/show/text/step_report.py",
            ["tests/launch/show/text", "tests/figures", "tests/launch/test_bench.py"],
        ),
        ("launch/ray/actors.py", ["tests/launch/ray"]),
        ("emu/trace/one.py", ["tests", "tests/figures", "tests/trace"]),
    ],
)
def test_the_tests_that_see_a_file_are_those_of_its_name_and_folder_then_more(tmp_path, path, tests):
    names = ("test_units.py", "inner/test_one.py", "launch/test_bench.py", "launch/test_run.py", "launch/test_loads.py")
    names = (*names, "launch/ray/test_cluster.py", "launch/show/test_draws.py", "launch/show/text/test_lines.py")
    repository(tmp_path, {f"tests/{name}": "" for name in names})
    assert seeing(tmp_path, Path(path))[:3] == tests


def test_near_tests_are_those_of_the_same_name_and_folder():
    assert seeing(ROOT, Path("emu/trace/growth.py"), near=True) == ["tests/trace/test_growth.py", "tests/trace"]


def test_each_run_has_the_modules_of_its_copy_and_none_of_an_earlier_run(tiny, tmp_path):
    """All runs are forks of one process, which must have imported nothing of either copy."""
    copy = Copy(tiny, tmp_path / "to")
    assert not copy.run(["tests/tiny"]).failed
    with copy.faulty(next(fault for fault in faults_of(tiny, SEEN) if fault.kind == "comparison")):
        assert copy.run(["tests/tiny"]).failed == "tests/tiny/test_sums.py::test_over"
    outcome = copy.run(["tests/tiny"])
    assert not outcome.failed
    assert "2 passed" in outcome.output


def test_the_tests_that_also_see_a_folder_or_a_file_exist():
    assert all((ROOT / path).exists() and all((ROOT / name).exists() for name in names) for path, names in ALSO.items())


def test_a_path_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        mutate.main(["emu/nothing.py"])
    assert "PATH must be a file or folder below" in capsys.readouterr().err


NESTED = "def f(a):\n    if (\n        a\n    ):\n        b = [\n            1,\n        ]\n    return b\n"


@pytest.mark.parametrize(
    ("line", "whole"), [(1, [1]), (2, [2, 3, 4]), (4, [2, 3, 4]), (5, [5, 6, 7]), (6, [5, 6, 7]), (8, [8])]
)
def test_a_line_stands_for_the_statement_around_it_without_its_body(line, whole):
    assert list(statement_lines(ast.parse(NESTED), line)) == whole


def test_tests_of_other_folders_run_after_those_that_the_file_of_a_fault_names():
    named = ["tests/a/test_x.py", "tests/a"]
    mixed = ["tests/b/test_y.py::t", "tests/a/test_z.py::t", "tests/a/test_x.py::t[tests/b]", "tests/ab/test_q.py::t"]
    assert in_order(mixed, named) == [mixed[2], mixed[1], mixed[0], mixed[3]]


def test_with_their_times_the_quickest_files_run_first_unless_they_are_far_away(tmp_path):
    report = tmp_path / "times.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_x.Group" name="t[1/2.py::q]" time="3.5" />'
        '<testcase classname="tests.a.test_x" name="u" time="0.5" /><testcase classname="tests.b.test_y" name="t" time="1.5" />'
        '<testcase classname="tests.c.test_z" name="t" time="3" /></testsuite></testsuites>'
    )
    seconds = seconds_of_tests(report)
    x = ["tests/a/test_x.py::Group::t[1/2.py::q]", "tests/a/test_x.py::u"]
    y, z = "tests/b/test_y.py::t", "tests/c/test_z.py::t"
    assert in_order([z, x[0], y, x[1]], ["tests/a"], seconds) == [y, *x, z]  # 2 * 1.5 s, 4 s, 2 * 3 s
    assert in_order([*x, y], ["tests/a"], seconds | {"tests.b.test_y::t": 2.5}) == [*x, y]


def test_a_record_tells_the_tests_that_executed_a_line_unless_an_import_did(tiny):
    """Line `SEEN` ran in one test, `UNSEEN` in none; the line of a `def` runs at the import."""
    written = tiny / "data"
    data = CoverageData(str(written))
    for context, lines in (("", {4, 8, 12}), ("tests/t.py::a[x|y]|run", {SEEN}), ("tests/t.py::a[x|y]|teardown", {SEEN})):
        data.set_context(context)
        data.add_lines({str((tiny / MODULE).resolve()): lines})
    record = Record(written, tiny)
    assert [record.tests(MODULE, line) for line in (SEEN, UNSEEN, 4)] == [["tests/t.py::a[x|y]"], [], []]
    assert record.tests_of_file(MODULE) == ["tests/t.py::a[x|y]"]
    assert record.tests_of_file(Path("no.py")) == []


def test_a_fault_of_an_import_is_tried_first_by_the_tests_that_execute_its_file(tiny):
    fault = next(iter(drawn(tiny, [MODULE], 1)))
    record = SimpleNamespace(tests=lambda *_: [], tests_of_file=lambda path: ["tests/far.py::t"] * (path == fault.path))
    found = mutate.tests_of(fault, record, {}, near=False)
    assert found == ["tests/far.py::t", *mutate.tests_of(fault, None, None, near=False)]
