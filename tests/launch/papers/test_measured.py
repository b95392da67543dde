"""`emu repro`: published runs beside estimates."""

import json
from pathlib import Path

import pytest

from emu.trace.device.step_error import KINDS
from launch.data.devices import DEVICES
from launch.data.fitted import FITTED, Blind, Fitted, read_fitted, write_fitted
from launch.papers.measured.report import TRAINING, ask
from launch.papers.measured.rows import Run, read_runs
from launch.papers.measured.settings import model_of

_SIZES = "layers,hidden,heads,kv_heads,ffn,vocab,seq,experts,top_k"
HEAD = f"id,source,model,{_SIZES},device,gpus,tp,cp,pp,vp,microbatch,global_batch,step_s"
ROW = "a,somebody,own-llama,4,256,8,4,768,1024,512,0,0,h100,8,2,1,2,1,1,8,0.01"


def csv_of(tmp_path: Path, *rows: str, head: str = HEAD) -> str:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((head, *rows)) + "\n")
    return str(path)


def run_of(**sizes):
    given = {"line": 2, "id": "a", "device": "h100", "gpus": 8, "layers": 4, "hidden": 256, "heads": 8, "ffn": 768}
    plan = {"vocab": 512, "seq": 128, "tp": 1, "pp": 1, "microbatch": 1, "global_batch": 8, "step_s": 1.0}
    return Run(**{**given, **plan, **sizes})


def test_a_run_of_ones_own_is_estimated_with_constants_that_have_not_seen_its_model(emu, tmp_path):
    other = ROW.replace("a,somebody,own-llama", "b,somebody,llama3.1-8b")
    found = emu("repro", "measured", "--data", csv_of(tmp_path, ROW, other), "--json").json
    own, known = found["rows"]
    assert (own["id"], own["measured_s"], own["kind"], own["architecture"]) == ("a", 0.01, "dense", "llama")
    assert own["ratio"] == pytest.approx(own["ours_s"] / 0.01)
    assert own["ours_s"] == own["in_sample_s"]
    assert set(own["fitted_on"]) == set(known["fitted_on"]) | {"llama3.1-8b"} == set(found["constants"]["h100"]["fitted_on"])
    assert known["ours_s"] != known["in_sample_s"] == own["in_sample_s"]
    (errors,) = found["errors"]
    assert (errors["device"], errors["kind"], errors["rows"]) == ("h100", "dense", 2)
    assert errors["worst_error"] == pytest.approx(max(abs(row["ratio"] - 1) for row in found["rows"]))
    text = emu("repro", "measured", "--data", csv_of(tmp_path, ROW)).out
    assert "own-llama" not in text
    assert "clock" in text
    assert "--fit" in text


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        ((ROW,), HEAD.replace(",tp", ",tensor"), "runs.csv, line 1: columns missing: tp; those needed are id, device"),
        ((ROW, ROW.replace("h100", "h1000")), HEAD, "runs.csv, line 3: "),
        ((ROW.replace("h100", "h1000"),), HEAD, "runs.csv, line 2: no device is called 'h1000'; did you mean h100"),
        ((ROW.replace(",0.01", ",soon"),), HEAD, "runs.csv, line 2: step_s must be a number above 0, got 'soon'"),
        ((ROW.replace(",256,", ",-256,"),), HEAD, "line 2: hidden must be a whole number of 1 or more, got '-256'"),
        ((ROW.replace(",0.01", ","),), HEAD, "line 2: step_s is missing, it must have a value in every row"),
        ((ROW, ROW), HEAD, "line 3: id must be one that line 2 has not, got 'a'"),
        ((ROW.replace("h100,8,2", "h100,8,3"),), HEAD, "line 2: gpus must be tp * cp * pp * dp = 6 * dp, got 8"),
        ((ROW.replace("h100,8,2", "h100,12,2"),), HEAD, "line 2: gpus must be a multiple of the 8 of a server, got 12"),
        ((ROW.replace(",0,0,h100", ",4,5,h100"),), HEAD, "line 2: top_k must be 1 to 4 of 4 experts, got 5"),
        ((ROW.replace(",4,256,8,4", ",4,256,8,5"),), HEAD, "runs.csv, line 2: "),
        ((f"{ROW},nemo-2024",), f"{HEAD},software", "line 2: no software is called 'nemo-2024'; did you mean nemo-2025"),
        ((f"{ROW},fp4",), f"{HEAD},precision", "line 2: no precision is called 'fp4'; did you mean fp8 or fp16"),
        (
            (f"{ROW},megatron-2021,fp8",),
            f"{HEAD},software,precision",
            "line 2: precision must be bf16 or fp16 with megatron-2021, got 'fp8'; software with FP8: nemo-2025, nemo-2025-70b",
        ),
        ((ROW.replace("h100,", "tpuv4,"),), HEAD, "line 2: device must be one whose servers are known: a100-80g"),
        ((ROW.replace(",1,1,8,0.01", ",1,1,7,0.01"),), HEAD, "runs.csv, line 2: "),
        ((), HEAD, "runs.csv, line 2: a row must follow the names of the columns, got none"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line_before_anything_starts(emu, tmp_path, rows, head, message):
    done = emu("repro", "measured", "--data", csv_of(tmp_path, *rows, head=head))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_there_is_refused(emu):
    done = emu("repro", "measured", "--data", "nowhere.csv")
    assert done.code == 2
    assert "cannot read 'nowhere.csv'" in done.err


@pytest.mark.parametrize(
    ("sizes", "architecture"),
    [
        ({}, "llama"),
        ({"ffn": 1024}, "gpt"),
        ({"ffn": 1024, "kv_heads": 4}, "nemotron"),
        ({"ffn": 1024, "kv_heads": 4, "model": "llama3.2-1b"}, "llama"),
        ({"model": "gpt-of-other-sizes", "ffn": 700}, "llama"),
        ({"kv_heads": 4, "experts": 8, "top_k": 2}, "mixtral"),
        ({"kv_heads": 4, "experts": 8, "top_k": 2, "model": "grok1-314b"}, "grok"),
    ],
)
def test_the_architecture_follows_from_name_and_sizes(sizes, architecture):
    run = run_of(**sizes)
    model, found = model_of(run, "x")
    assert found == architecture
    assert (model.layers, model.hidden, model.vocab) == (4, 256, 512)
    assert (model.experts, model.top_k) == (run.experts, run.top_k)


def test_every_published_run_can_be_asked_and_its_software_is_that_of_its_source():
    asked = {run.id: ask(run, "x") for run in read_runs(TRAINING, "training.csv")}
    assert len(asked) == 22
    assert asked["sc21-39b"].software == "megatron-2021"
    assert asked["kor-22b-sel"].software == "megatron-2022"
    of_recipes = {"8b-8": "nemo-2025", "70b-64": "nemo-2025-70b", "405b-96": "nemo-2025-405b", "n15b-64": "nemo-2025-nemotron"}
    assert {run: asked[f"dgxc-{run}"].software for run in of_recipes} == of_recipes
    assert asked["dgxc-grok1-128"].software == "nemo-2025-grok"
    kernels = {run: asked[run].request.stack.attention for run in ("dgxc-8b-8", "dgxc-grok1-512", "dgxc-n15b-64", "sc21-39b")}
    assert [*kernels.values()] == ["cudnn", "fa2", "cudnn", "unfused"]
    assert asked["kor-22b-sel"].request.plan.sp
    assert not asked["kor-175b-full"].request.plan.sp
    assert asked["dgxc-70b-64"].topology == "servers:nodes=8,gpus=8,nvlink=450GB/s,nic=50GB/s,adds=no"
    assert {each.architecture for each in asked.values()} == {"llama", "gpt", "nemotron", "grok"}


PREDICTED = TRAINING.with_name("predicted.csv")
SOME = ("dgxc-8b-8-fp8", "dgxc-405b-32", "dgxc-405b-32-fp8", "dgxc-n15b-16", "dgxc-n15b-16-fp8")


def test_every_run_that_no_fit_has_seen_can_be_asked_and_none_is_in_the_fit():
    runs = read_runs(PREDICTED, "predicted.csv")
    asked = {run.id: ask(run, "x") for run in runs}
    assert len(asked) == 54
    assert asked["bridge-qwen3-30b-16-fp8"].architecture == "qwen3-moe"
    assert not {run.id for run in read_runs(TRAINING, "training.csv")} & set(asked)
    assert {run.kind for run in runs} == {"dense", "experts", "dense in FP8", "experts in FP8"}
    stacks = {asked[run.id].request.stack.fp8 for run in runs if run.precision == "fp8"}
    assert stacks == {"delayed", "tensor"}


def test_runs_that_no_fit_has_seen_are_near_also_in_fp8(emu, tmp_path):
    """By constants without the model: bfloat16 within 3 %, FP8 within 7 %, of which nothing was fitted on any step."""
    head, *lines = PREDICTED.read_text().splitlines()
    chosen = [line for line in lines if line.partition(",")[0] in SOME]
    found = emu("repro", "measured", "--data", csv_of(tmp_path, *chosen, head=head), "--json").json
    off = {row["id"]: abs(row["ratio"] - 1) for row in found["rows"]}
    for row in found["rows"]:  # what is kept is what the command finds, and an estimate's interval holds for it
        assert float(f"{row['ratio']:.4g}") in read_fitted()["h100"].unseen[row["kind"]][row["model"]]
        assert off[row["id"]] <= DEVICES["h100"].step_error(KINDS[row["kind"]]).share + 5e-5
    assert set(off) == set(SOME)
    assert all(value < (0.07 if run.endswith("fp8") else 0.03) for run, value in off.items())
    assert {row["kind"] for row in found["errors"]} == {"dense", "dense in FP8"}


def test_stages_are_uneven_only_where_layers_do_not_divide():
    uneven = ask(run_of(layers=14, pp=4, tp=2, global_batch=8), "x").request.plan
    assert uneven.layers == (3, 4, 4, 3)
    assert ask(run_of(layers=16, pp=4, tp=2, global_batch=8), "x").request.plan.layers == ()


def test_fitted_constants_are_read_as_they_were_written(tmp_path):
    unseen = {"dense": {"one": (0.99, 1.02), "three": (1.1,)}}
    blind = {"dense": Blind(10, 0.02, 0.05)}
    written = {"h100": Fitted(("one", "two"), {"clock": 0.5}, {"one": {"clock": 0.6}, "two": {"clock": 0.4}}, blind, unseen)}
    write_fitted(written, tmp_path / "found.json")
    assert read_fitted(tmp_path / "found.json") == written
    assert written["h100"].for_model("one") == ({"clock": 0.6}, ("two",))
    assert written["h100"].for_model("three") == ({"clock": 0.5}, ("one", "two"))
    assert json.loads(FITTED.read_text())


def test_a_fit_on_runs_of_ones_own_is_written_and_used(emu, tmp_path):
    other = ROW.replace("a,somebody,own-llama,4", "b,somebody,other-llama,6")
    to = tmp_path / "found.json"
    found = emu("repro", "measured", "--data", csv_of(tmp_path, ROW, other), "--fit", str(to), "--json").json
    assert read_fitted(to)["h100"].models == ("own-llama", "other-llama")
    ratios = {row["model"]: (float(f"{row['ratio']:.4g}"),) for row in found["rows"]}
    assert read_fitted(to)["h100"].unseen == {"dense": ratios}
    assert found["rows"][0]["fitted_on"] == ["other-llama"]


def test_nccl_on_a_node_is_within_a_tenth_of_its_measured_times_at_the_median(emu):
    found = emu("repro", "nccl", "--json").json
    assert len(found["rows"]) == 10
    assert found["median_error"] < 0.1
    small, large = found["rows"][0], found["rows"][-1]
    assert "in-switch" in large["algorithm"]
    assert "in-switch" not in small["algorithm"]
    bench = emu("bench", "all_reduce", "--stack", "nccl", "--topology", "dgx-h100", "--size", "64KiB", "--json").json
    assert bench[0]["time_s"] == small["ours_s"]
