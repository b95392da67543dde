"""Answers print, draw and save themselves, and questions take names, files and objects."""

import json
import subprocess
import sys
from dataclasses import fields

import networkx as nx
import pytest
from IPython.lib.pretty import pretty
from matplotlib.figure import Figure

import emu
from emu.collective.algorithm import ALGORITHMS
from emu.errors import InputError
from launch.data import devices
from launch.data.devices import DEVICES

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


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.json", b"{"), ("a.html", b"<!"), ("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.trace", b"")],
)
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
    with pytest.raises(emu.InputError, match=r"saved as \.json, .*, \.pdf or \.trace, got 'a\.xml'"):
        step.save(tmp_path / "a.xml")


def test_an_answer_draws_into_a_figure_of_its_own_or_into_given_axes(step):
    assert step.plot().figure is not None
    axes = Figure().add_subplot()
    assert step.plot(axes) is axes
    assert axes.get_title() == "A step of llama-tiny on 2 h100"
    assert axes.patches
    assert axes.get_legend() is not None
    assert not axes.figure.legends


def test_a_picture_of_two_panels_is_not_drawn_into_one():
    waste = emu.faults(topology="nvl:72", tp=32)
    with pytest.raises(emu.InputError, match="two panels; leave `ax` out"):
        waste.plot(Figure().add_subplot())
    assert len(waste.plot().figure.axes) == 2


def test_a_notebook_shows_the_page_and_a_topology_its_picture_and_facts(step):
    assert "srcdoc=" in step._repr_html_()
    shown = emu.build_topology(SWITCH)._repr_html_()
    assert "data:image/png" in shown
    assert "bisection" in shown
    assert "data:image/png" in emu.schedule("all_reduce", "ring", 4)._repr_html_()


def test_a_notebook_shows_a_device_and_a_model_on_one_line():
    shown = [pretty(part) for part in (emu.find_device("h100"), emu.find_model("llama3-8b"))]
    assert "bfloat16 989 TFLOP/s" in shown[0]
    assert "8.03 B parameters, 32 layers" in shown[1]
    assert max(map(len, shown)) < 250


def test_a_notebook_shows_a_picture_that_is_the_last_line_of_a_cell(step):
    drawn = [step.figure(), step.plot(), emu.draw(emu.build_topology(SWITCH)), emu.faults(topology="nvl:72").plot()]
    for shown in drawn:
        assert shown._repr_png_().startswith(b"\x89PNG")
    assert not hasattr(step.plot(Figure().add_subplot()), "_repr_png_")  # pyplot shows the user's own


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


@pytest.mark.usefixtures("own_models")
def test_a_dict_of_sizes_is_a_model():
    named = emu.find_model("llama-tiny")
    sizes = {"architecture": "llama", "name": "mine", **vars_of(named.config)}
    assert emu.find_model(sizes).parameters() == named.parameters()
    own = emu.estimate(**{**STEP, "model": {**sizes, "name": "mine-too"}}, topology=SWITCH)
    assert own.step_time_s == emu.estimate(**STEP, topology=SWITCH).step_time_s
    again = emu.estimate(**{**STEP, "model": {**sizes, "name": "mine-too"}}, topology=SWITCH)  # equal sizes are the same model
    assert again.step_time_s == own.step_time_s
    other = emu.estimate(
        **{**STEP, "model": {**sizes, "name": "mine-too", "layers": 2 * sizes["layers"]}}, topology=SWITCH
    )  # others, another
    assert other.compute_s > 1.5 * own.compute_s
    with pytest.raises(emu.InputError, match="of a name that no model of the catalogue has, got 'llama-tiny'"):
        emu.find_model({**sizes, "name": "llama-tiny"})


def vars_of(config):
    return {each.name: getattr(config, each.name) for each in fields(config) if getattr(config, each.name) is not None}


def test_errors_say_the_field_the_value_and_how_to_mend_it():
    with pytest.raises(emu.InputError) as caught:
        emu.estimate(**{**STEP, "model": "lama-tiny"}, topology=SWITCH)
    assert (caught.value.field, caught.value.value) == ("model", "lama-tiny")
    assert "llama-tiny" in caught.value.mend


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"topolgy": SWITCH}, "estimate: no argument is called 'topolgy'; did you mean topology?"),
        ({"seq": "64"}, "estimate: seq must be a whole number, got '64'"),
        ({"plan": {"dp": 2}}, "estimate: plan must be text, got"),
        ({"topology": 8}, "topology must be a name, a file, a Topology or a networkx graph, got 8"),
        ({"device": {"nmae": "x"}}, "no field of a device is called 'nmae'; did you mean name?"),
        ({"topology": emu.build_topology(SWITCH), "sweep": "seq=16,32"}, "sweep: topology must be a name or a file"),
    ],
)
def test_what_python_gives_wrong_is_named_as_python_names_it(given, line):
    with pytest.raises(emu.InputError) as caught:
        emu.estimate(**{"topology": SWITCH, **STEP, **given})
    assert type(caught.value) is emu.InputError
    assert str(caught.value).startswith(line)
    assert "--" not in str(caught.value)


BENCH = emu.bench  # a test that has the command calls it `emu`


def test_a_command_names_options_and_a_function_arguments(emu):
    with pytest.raises(InputError, match="bench: no size given; give size 64MiB, or begin 1MiB"):
        BENCH("all_reduce", topology=SWITCH)
    assert "give --size 64MiB, or --begin 1MiB" in emu("bench", "all_reduce", "--topology", SWITCH).err


def test_completion_offers_the_fields_of_the_only_row_and_nothing_internal(step):
    offered = dir(step)
    assert {"step_time_s", "mfu", "to_dict", "plot", "save", "rows"} <= set(offered)
    assert not {"as_json", "exit_code", "count", "index"} & set(offered)
    with pytest.raises(AttributeError, match="did you mean step_time_s"):
        _ = step.steptime_s


def test_the_fastest_algorithms_are_rows():
    compared = emu.bench("all_reduce", topology=SWITCH, algorithm="all", begin="1KiB", end="1MiB", factor=1024)
    assert [row.size_bytes for row in compared.fastest] == [2**10, 2**20]
    assert all(fast.time_s <= row.time_s for fast in compared.fastest for row in compared if row.size_bytes == fast.size_bytes)


def test_a_builder_that_is_defined_again_takes_the_place_of_the_first():
    def build(first):
        @emu.register.collective("scatter", "a-test-of-cells")
        def cell(n):
            sends = emu.Sends([first] * (n - 1), range(1, n), range(1, n))
            return emu.Schedule.build(n, n, [sends])

    try:
        build(1)  # rank 1 has nothing to send
        assert emu.verify("scatter", algorithm="a-test-of-cells", ranks=4).failure
        build(0)
        assert not emu.verify("scatter", algorithm="a-test-of-cells", ranks=4).failure
    finally:
        ALGORITHMS._filed.pop("scatter/a-test-of-cells")


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


def test_a_device_of_ones_own_is_known_by_its_name():
    name = "a-device-of-a-test"
    try:
        for peak in (1e15, 2e15):  # as where a cell of a notebook runs again

            @emu.register.device
            def own(peak=peak):
                return emu.Device(name, {"bfloat16": peak, "float32": 1e14}, 4e12, source="a test")

        assert emu.find_device(name).peak_flops["bfloat16"] == 2e15
        fast, slow = (emu.estimate(**STEP, topology=SWITCH, device=each) for each in (name, "a100-80g"))
        assert fast.device == name
        assert fast.compute_s < slow.compute_s
        with pytest.raises(emu.InputError, match="a name that no other device has"):
            emu.register.device(lambda: emu.find_device("h100"))
    finally:
        DEVICES.pop(name)
        devices._OWN._filed.pop(name)
