"""`emu estimate --sweep NAME=VALUES`: a step at several values, as CSV and as a picture."""

import csv
import io
import json

import pytest

from launch.front.steps.sweeps import parse_sweeps, points, words_at
from launch.show.chart.step_chart import sweep_figure
from launch.show.text.estimate_table import SweepRow
from tests.launch.show.drawn import on_one_another, outside

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
STEP = ("estimate", "--model", "llama-tiny", "--plan", "tp=4,dp=2", "--global-batch", "16", "--seq", "64", "--topology", SWITCH)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_each_point_is_the_step_that_the_command_estimates_there(emu):
    found = rows(emu(*STEP, "--sweep", "topology.bandwidth=25GB/s..100GB/s:3").out)
    assert [row["topology.bandwidth"] for row in found] == ["25GB/s", "50GB/s", "100GB/s"]
    for row in found:
        one = emu(*STEP[:-1], row["topology"], "--json").json
        assert float(row["step_time_s"]) == one["step_time_s"]
        means = one["mean_over_ranks"]
        for part in ("compute_s", "exposed_comm_s", "idle_s", "bubble_s"):
            assert float(row[f"mean_{part}"]) == means[part]
        assert float(row["mean_exposed_tp_s"]) == means["exposed_comm_by_axis_s"]["tp"] > 0
    assert sorted((float(row["step_time_s"]) for row in found), reverse=True) == [float(row["step_time_s"]) for row in found]


def test_several_sweeps_are_their_product_on_every_topology(emu, tmp_path):
    table, picture = tmp_path / "steps.csv", tmp_path / "steps.png"
    more = ("--topology", "ub-mesh:board", "--sweep", "plan.tp=2,4", "--sweep", "seq=32..128:3")
    done = emu(*STEP, *more, "--out", str(table), "--png", str(picture))
    assert (done.code, done.out) == (0, "")
    found = rows(table.read_text())
    wanted = [(tp, seq, t) for tp in ("2", "4") for seq in ("32", "64", "128") for t in (SWITCH, "ub-mesh:board")]
    assert [(row["plan.tp"], row["seq"], row["topology"]) for row in found] == wanted
    assert {(row["plan.tp"], row["ranks"]) for row in found} == {("2", "4"), ("4", "8")}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_option_that_is_swept_need_not_be_given(emu, tmp_path):
    swept = ("--sweep", "seq=32..128:3", "--sweep", "global-batch=16,32")
    given = emu(*STEP, *swept)
    words = (*STEP[:5], *STEP[9:])
    assert not {"--seq", "--global-batch"} & {*words}
    assert emu(*words, *swept).out == given.out
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('model = "llama-tiny"\nplan = "tp=4,dp=2"\nsweep = ["seq=32..128:3", "global-batch=16,32"]\n')
    assert emu("estimate", "--config", str(scenario), "--topology", SWITCH).out == given.out
    assert emu("estimate", *swept[:2], "--config", str(scenario), "--global-batch", "16", "--topology", SWITCH).code == 0


def test_a_point_that_fits_nothing_leaves_its_reason(emu):
    done = emu(*STEP, "--sweep", "plan.tp=4,16", "--json")
    fits, other = done.json
    assert (done.code, fits["refused"], other["step"]) == (0, "", None)
    assert "must be at most the 8 NPUs" in other["refused"]
    assert fits["point"] == {"plan.tp": "4"}


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("plan.tp=", "--sweep: values of plan.tp must be one or more, got ''; e.g. plan.tp=1,2,4"),
        ("plan.tp", "--sweep: values of plan.tp must be one or more, got ''"),
        ("plan.tp=1,,2", "values of plan.tp must be different and none of them empty, got '1,,2'"),
        ("plan.tp=1,1", "values of plan.tp must be different and none of them empty, got '1,1'"),
        ("plan.tpp=1", "no quantity to sweep is called 'plan.tpp'; did you mean plan.tp"),
        ("sek=1", "no quantity to sweep is called 'sek'; did you mean seq"),
        ("model=llama-tiny,nosuch", "no model is called 'nosuch'"),
        ("seq=1..", "COUNT 2 to 10000, got '1..'; e.g. seq=1024..65536:7"),
        ("seq=1..64:\u0663", "COUNT 2 to 10000"),
        ("seq=1..64:99999999999", "COUNT 2 to 10000, got '1..64:99999999999'"),
        ("seq=1..8:9", "the range of seq must be 9 different whole numbers, got '1..8:9'; take a smaller COUNT"),
        ("seq=\u0663", "seq must be whole numbers of 1 or more"),
        ("plan.tp=4,x", "plan: tp must be a whole number, got 'x'"),
        ("plan.tp=4,0", "plan: tp must be 1 or more, got 0"),
        ("stack.sofware=pytorch", "no quantity to sweep is called 'stack.sofware'; did you mean stack.software"),
        ("topology.bandwith=1GB/s", "switch: unknown setting 'bandwith'; did you mean bandwidth?"),
        ("device.gem_share=0.5", "no setting of a device is called 'gem_share'; did you mean gemm_share"),
        ("topology.bandwidth=fast", "bandwidth must be a rate"),
        ("model=llama-tinny", "did you mean llama-tiny"),
        ("seq=many", "--sweep: seq must be whole numbers of 1 or more, got 'many'"),
        ("seq=64..32:3", "--sweep: the range of seq must be LOW..HIGH:COUNT of one unit, LOW above 0 and below HIGH"),
        ("seq=0..32:3", "the range of seq must be"),
        ("seq=1..32", "the range of seq must be"),
        ("seq=1..32:1", "the range of seq must be"),
        ("topology.bandwidth=1GB/s..8Gb/s:3", "the range of topology.bandwidth must be LOW..HIGH:COUNT of one unit"),
        ("plan.tp=16,32", "--sweep: no point has a step; the first: plan: tp * cp * dp * pp must be at most the 8 NPUs"),
    ],
)
def test_what_cannot_be_swept_is_one_line(emu, sweep, message):
    done = emu(*STEP, "--sweep", sweep)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--sweep", "seq=1,2", "--timeline", "x"), "estimate: --timeline must be left out where there is a --sweep"),
        (("--sweep", "seq=1,2", "--trace", "x.trace"), "estimate: --trace must be left out where there is a --sweep"),
        (("--sweep", "seq=1,2", "--sweep", "seq=3"), "--sweep: seq is given twice"),
        (
            ("--topology", "x.csv", "--sweep", "topology.n=1"),
            "--sweep: topology.n must be a setting of a topology of the catalogue, got 'x.csv'; write a file for each value",
        ),
    ],
)
def test_what_does_not_go_with_a_sweep_is_one_line(emu, more, message):
    done = emu(*STEP, *more)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("topology.bandwidth=25GB/s..400GB/s:5", ("25GB/s", "50GB/s", "100GB/s", "200GB/s", "400GB/s")),
        ("seq=1024..8192:4", ("1024", "2048", "4096", "8192")),
        ("seq=1..10:3", ("1", "3", "10")),
        ("device.gemm_share=0.4..0.9:3", ("0.4", "0.6", "0.9")),
        ("topology.latency=1.5us..6us:3", ("1.5us", "3us", "6us")),
        ("plan.sp=on,off", ("on", "off")),
        ("global_batch=1, 2", ("1", "2")),
    ],
)
def test_a_sweep_has_these_values(text, values):
    assert parse_sweeps([text]) == {text.partition("=")[0].replace("l_b", "l-b"): values}


def test_a_point_changes_one_word_and_keeps_the_others():
    words = {
        "plan": "tp=8,sp,layers=7,8x14,7,dp=2",
        "stack": "nccl,software=megatron",
        "topology": SWITCH,
        "device": "h100",
        "seq": "1",
    }
    changed = words_at(
        words, {"plan.layers": "4", "plan.sp": "off", "stack.alpha": "1us", "topology.n": "4", "device.x": "2", "seq": "3"}
    )
    assert changed["plan"] == "tp=8,dp=2,layers=4,sp=off"
    assert changed["stack"].startswith("launch=")
    assert changed["stack"].endswith(",software=megatron,alpha=1us")
    assert changed["stack"].count("alpha") == 1
    assert changed["topology"] == "switch:n=4,bandwidth=50GB/s,latency=500ns"
    assert (changed["device"], changed["seq"]) == ("h100:x=2", "3")
    assert words_at(words | {"device": "own.toml:x=1"}, {"device.x": "2"})["device"] == "own.toml:x=2"


def test_the_last_sweep_changes_fastest():
    found = points({"a": ("1", "2"), "b": ("3", "4")})
    assert [tuple(point.values()) for point in found] == [("1", "3"), ("1", "4"), ("2", "3"), ("2", "4")]


def test_words_of_a_picture_of_a_sweep_lie_on_no_others(emu):
    done = emu(*STEP, "--sweep", "topology.bandwidth=25GB/s..100GB/s:3", "--sweep", "plan.sharding=ddp,zero1,fsdp", "--json")
    step = type("Step", (), {})
    found = []
    for row in done.json:
        made = step()
        made.step_time_s = row["step"]["step_time_s"]
        found.append(SweepRow(row["topology"], row["point"], "", made))
    figure = sweep_figure(found, "A step")
    assert outside(figure) == []
    assert on_one_another(figure) == []
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["25GB/s", "50GB/s", "100GB/s"]
    assert sorted(text.get_text() for text in axes.texts) == [f"plan.sharding={s}" for s in ("ddp", "fsdp", "zero1")]


def test_a_scenario_in_a_file_is_swept(emu, tmp_path):
    scenario = tmp_path / "scenario.toml"
    lines = ("model", "plan", "topology"), ("llama-tiny", "dp=2", SWITCH)
    text = "\n".join(f'{name} = "{value}"' for name, value in zip(*lines, strict=True))
    scenario.write_text(f'{text}\nseq = 64\nglobal-batch = 16\nsweep = ["plan.dp=1,2", "seq=32,64"]\n')
    assert len(rows(emu("estimate", "--config", str(scenario)).out)) == 4
    assert json.loads(emu("estimate", "--config", str(scenario), "--sweep", "seq=32,64", "--json").out)[0]["point"] == {
        "seq": "32"
    }


def test_a_setting_of_a_device_that_is_swept_is_that_of_each_device_in_whichever_order_they_are_named(emu):
    settings, devices = ("--sweep", "device.gemm_share=0.2,0.9"), ("--sweep", "device=h100,a100-80g")
    found, turned = (rows(emu(*STEP, *swept).out) for swept in ((*settings, *devices), (*devices, *settings)))
    times = {(row["device.gemm_share"], row["device"]): row["step_time_s"] for row in found}
    assert times == {(row["device.gemm_share"], row["device"]): row["step_time_s"] for row in turned}
    assert len({*times.values()}) == 4


def test_a_library_that_is_swept_chooses_the_algorithms_of_its_point(emu):
    """Within a host NCCL takes rings where the fastest of all are direct."""
    step = ("estimate", "--model", "llama-tiny", "--plan", "tp=4,dp=2", "--global-batch", "16", "--seq", "64")
    on = ("--topology", "dgx-h100:superpod:servers=2")
    [swept] = rows(emu(*step, *on, "--sweep", "stack.library=nccl").out)
    named, auto = (emu(*step, *on, *stack, "--json").json["step_time_s"] for stack in (("--stack", "library=nccl"), ()))
    assert float(swept["step_time_s"]) == named > auto
