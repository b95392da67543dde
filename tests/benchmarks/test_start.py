"""The cases of the table of starts are commands that run, in folders that hold what the case says."""

from dataclasses import replace

import pytest

from benchmarks.command import Ran
from benchmarks.start import CASES, Measured, chosen, cold, main, measure, row, uncompiled, warm, without_choices
from launch.main import main as emu

LIST = CASES["list"]


@pytest.mark.parametrize("command", sorted({case.command for case in CASES.values()}), ids=" ".join)
def test_every_command_runs(command, capsys):
    with pytest.raises(SystemExit) as leave:
        emu([*command])
    assert leave.value.code == 0
    assert capsys.readouterr().out


def test_a_command_is_run_as_often_as_import_torch_and_once_before(tmp_path):
    places = []
    case = replace(LIST, command=("--version",), finds=lambda place: places.append(place) or warm(place))
    found = measure(case, tmp_path, repeats=2)
    assert [run.said[:12] for run in found.command] == ["emu, version"] * 2
    assert len(found.torch) == 2
    assert places == [tmp_path] * 3
    assert all(run.cpu_s > 0 for run in (*found.command, *found.torch))


def test_choices_are_forgotten_and_what_is_compiled_is_not(tmp_path):
    kept = {name: tmp_path / "warm" / "emu" / name / "file" for name in ("choices", "compiled")}
    for path in kept.values():
        path.parent.mkdir(parents=True)
        path.touch()
    assert without_choices(tmp_path) == warm(tmp_path)
    assert [name for name, path in kept.items() if path.exists()] == ["compiled"]


@pytest.mark.parametrize("finds", [cold, uncompiled])
def test_every_cold_run_has_empty_folders_of_its_own(finds, tmp_path):
    first, second = finds(tmp_path), finds(tmp_path)
    assert not {*first.environ.values()} & {*second.environ.values()}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("wall_s", "met"), [((3.0, 1.0), "yes"), ((3.0, 1.1), "no")])
def test_a_bound_is_met_by_the_least_wall_time_over_torchs_least(wall_s, met):
    command = tuple(Ran("", wall, 4.0, 0.1) for wall in wall_s)
    torch = tuple(Ran("", wall, 2.0, 0.2) for wall in (9.0, 2.0))
    said = row("list", LIST, Measured(command, torch)).split(" | ")
    assert said[2:6] == [f"{min(wall_s) / 2:.2f}", "0.5", met, "2.00"]


def test_cases_are_chosen_by_how_their_names_begin(monkeypatch, capsys):
    assert chosen([]) == list(CASES)
    assert chosen(["auto"]) == ["auto-mesh", "auto-tree", "auto-hpn"]
    monkeypatch.setattr("sys.argv", ["start", "never"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("start: no case begins with never; there are list, ")
