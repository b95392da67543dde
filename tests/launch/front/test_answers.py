"""Answers print, draw and save themselves, and questions take names, files and objects."""

import json
import subprocess
import sys
from dataclasses import fields

import networkx as nx
import pytest
from matplotlib.figure import Figure

import emu

SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
STEP = {"model": "llama-tiny", "plan": "dp=2", "global_batch": 4, "seq": 16}


@pytest.fixture(scope="module")
def step():
    return emu.estimate(**STEP, topology=SWITCH)


def test_an_answer_of_one_row_has_the_fields_of_the_row(step):
    assert step.step_time_s == step[0].step_time_s > 0
    with pytest.raises(AttributeError, match="no_such_field"):
        _ = step.no_such_field


def test_a_field_of_an_answer_of_several_rows_is_asked_of_one_of_them():
    steps = emu.estimate(**STEP, topology=[SWITCH, "ub-mesh:board"])
    assert [each.topology for each in steps] == [SWITCH, "ub-mesh:board"]
    with pytest.raises(AttributeError, match="2 rows"):
        _ = steps.step_time_s


def test_nothing_is_printed_by_a_question(capsys):
    emu.estimate(**STEP, topology=SWITCH)
    assert capsys.readouterr() == ("", "")


def test_an_answer_prints_as_its_command(step, emu):
    words = ("--model", "llama-tiny", "--plan", "dp=2", "--global-batch", "4", "--seq", "16", "--topology", SWITCH)
    lines = [line for line in emu("estimate", *words).out.splitlines() if not line.startswith("timed ")]
    assert lines == [line for line in repr(step).splitlines() if not line.startswith("timed ")]


@pytest.mark.parametrize(("name", "begins"), [("a.json", b"{"), ("a.html", b"<!"), ("a.png", b"\x89PNG"), ("a.trace", b"")])
def test_an_answer_saves_itself_by_the_ending_of_the_file(step, name, begins, tmp_path):
    step.save(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
    if name.endswith(".json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads(json.dumps(step.to_dict()))
    if name.endswith(".trace"):
        assert emu.compare(tmp_path / name, emu.load_trace(tmp_path / name)).equal


def test_the_rows_of_an_answer_are_a_table_of_pandas(step):
    table = step.to_pandas()
    assert table.shape[0] == 1
    assert table["step_time_s"][0] == step.step_time_s
    assert table["exposed_comm_by_axis_s.dp"][0] == step.exposed_comm_by_axis_s["dp"]


def test_an_answer_refuses_an_ending_that_it_does_not_have(step, tmp_path):
    with pytest.raises(emu.InputError, match=r"saved as \.json, \.html, \.png or \.trace, got 'a\.csv'"):
        step.save(tmp_path / "a.csv")


def test_an_answer_draws_into_a_figure_of_its_own_or_into_given_axes(step):
    assert step.plot().figure is not None
    axes = Figure().add_subplot()
    assert step.plot(axes) is axes
    assert axes.get_title() or axes.patches


def test_a_notebook_shows_the_page_and_a_topology_its_picture_and_facts(step):
    assert "srcdoc=" in step._repr_html_()
    shown = emu.build_topology(SWITCH)._repr_html_()
    assert "data:image/png" in shown
    assert "bisection" in shown
    assert "data:image/png" in emu.schedule("all_reduce", "ring", 4)._repr_html_()


def test_the_repr_of_a_large_topology_is_a_line():
    assert repr(emu.build_topology("ub-mesh:pod")).count("\n") == 0
    assert len(repr(emu.build_topology("ub-mesh:pod"))) < 100


def test_a_graph_of_networkx_is_a_topology():
    graph = nx.star_graph(4)  # node 0 is the switch
    nx.set_node_attributes(graph, {0: "switch"} | dict.fromkeys(range(1, 5), "npu"), "kind")
    nx.set_edge_attributes(graph, "50GB/s", "bandwidth")
    nx.set_edge_attributes(graph, "500ns", "latency")
    rows = emu.bench("all_reduce", topology=graph, algorithm="ring", size=2**20, timing_only=True)
    assert rows.time_s == emu.bench("all_reduce", topology=SWITCH, algorithm="ring", size="1MiB", timing_only=True).time_s


def test_a_dict_of_sizes_is_a_model():
    named = emu.find_model("llama-tiny")
    sizes = {"architecture": "llama", "name": "mine", **vars_of(named.config)}
    assert emu.find_model(sizes).parameters() == named.parameters()
    own = emu.estimate(**{**STEP, "model": {**sizes, "name": "mine-too"}}, topology=SWITCH)
    assert own.step_time_s == emu.estimate(**STEP, topology=SWITCH).step_time_s


def vars_of(config):
    return {each.name: getattr(config, each.name) for each in fields(config) if getattr(config, each.name) is not None}


def test_errors_say_the_field_the_value_and_how_to_mend_it():
    with pytest.raises(emu.InputError) as caught:
        emu.estimate(**{**STEP, "model": "lama-tiny"}, topology=SWITCH)
    assert (caught.value.field, caught.value.value) == ("model", "lama-tiny")
    assert "llama-tiny" in caught.value.mend


def test_progress_is_told_to_a_function():
    told = []
    with emu.progress(lambda label, done, total: told.append((label, done, total))):
        emu.estimate(**STEP, topology=[SWITCH, "ub-mesh:board"])
    assert told[-1] == ("estimating a step of llama-tiny", 2, 2)


def test_the_library_loads_nothing_heavy_before_it_is_asked():
    code = "import sys, emu; dir(emu); print(sorted(sys.modules.keys() & {'torch', 'numpy', 'click', 'matplotlib', 'launch'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_of_the_front_is_there():
    for name in emu.__all__:
        assert getattr(emu, name) is not None
