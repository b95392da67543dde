"""The dtype that `emu run` and `emu replay` time a script in: the one that it ran in, unless `--dtype` says another."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from emu.trace.trace_file import load, save
from launch.data.devices import DEVICES

SWITCH = "switch:n=4,bandwidth=50GB/s,latency=0s"
RAN = ("--topology", SWITCH, "--algorithm", "all_reduce=ring")
COUNT = 1 << 20
SENDS = f"""
import torch, torch.distributed as dist
dist.init_process_group("nccl")
dist.all_reduce(torch.empty({COUNT}, device="cuda"))
"""
SIDE = 512
MULTIPLIES = f"""
import sys, torch
from torch import nn
a = torch.ones({SIDE}, {SIDE}, device="cuda")
exec(sys.argv[1])
a @ a
"""
BARE = "h100:unhidden_share=0,spread=0,clock=1,narrow=0,last_wave=1"  # a product takes its FLOPs in whole waves
TRAIN = ("train", "--model", "llama-tiny", "--plan", "dp=2", "--topology", "ub-mesh:board", "--steps", "1", "--json")


@pytest.fixture
def step(emu, tmp_path: Path):
    """Runs the text of a script, and returns its step."""

    def run(text: str, *args: str, ranks: int = 4, options: tuple[str, ...] = ()) -> dict[str, object]:
        path = tmp_path / "script.py"
        path.write_text(text)
        done = emu("run", "--ranks", str(ranks), *RAN, *options, "--json", str(path), *args)
        assert done.code == 0, done.err
        (found,) = done.json
        return found

    return run


@pytest.mark.parametrize("cluster", ["local", "fake"])
def test_a_message_of_float32_has_four_bytes_an_element_and_half_of_the_time_in_bfloat16(step, cluster: str) -> None:
    where = ("--cluster", cluster)
    ran, reduced = step(SENDS, options=where), step(SENDS, options=(*where, "--dtype", "bfloat16"))
    assert (ran["dtype"], ran["messages_in"]) == ("as-ran", ["float32"])
    assert (reduced["dtype"], reduced["messages_in"]) == ("bfloat16", ["bfloat16"])
    # A ring on 4 ranks sends 6 quarters of the buffer over each link of 50 GB/s.
    assert ran["exposed_comm_s"] == pytest.approx(COUNT * 4 * 6 / 4 / 50e9, rel=1e-6)
    assert ran["exposed_comm_s"] == pytest.approx(2 * reduced["exposed_comm_s"], rel=1e-6)


@pytest.mark.parametrize(
    "allows",
    [
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.set_float32_matmul_precision('high')",
        "torch.set_float32_matmul_precision('medium')",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.fp32_precision = 'tf32'",
    ],
)
def test_a_product_takes_the_peak_of_tf32_where_the_script_allows_it(step, allows: str) -> None:
    options = ("--device", BARE)
    single, rounded = (step(MULTIPLIES, words, ranks=1, options=options) for words in ("pass", allows))
    peaks = DEVICES["h100"].peak_flops
    assert single["products"] == [{"dtype": "float32", "share": 1.0, "peak_flops": peaks["float32"]}]
    assert rounded["products"] == [{"dtype": "tf32", "share": 1.0, "peak_flops": peaks["tf32"]}]
    fills = single["compute_s"] - rounded["compute_s"]  # all but the products takes its bytes, alike in both
    product_s = {dtype: 2 * SIDE**3 / peaks[dtype] for dtype in ("float32", "tf32")}
    waves = fills / (product_s["float32"] - product_s["tf32"]) * DEVICES["h100"].gemm_share
    tiles = (SIDE // DEVICES["h100"].tile[0]) * (SIDE // DEVICES["h100"].tile[1])
    assert waves == pytest.approx(DEVICES["h100"].cores / tiles, rel=1e-6)
    for words in ("pass", allows):
        assert step(MULTIPLIES, words, ranks=1, options=(*options, "--dtype", "float32"))["compute_s"] == single["compute_s"]


@pytest.mark.parametrize("cluster", ["local", "fake"])
def test_tf32_is_of_the_rank_that_allows_it(step, cluster: str) -> None:
    """Only operators that come after the setting are in TF32: rank 0 multiplies twice with it, rank 1 once."""
    setting = "torch.backends.cuda.matmul.allow_tf32 = True"
    first, second = (f"if dist.get_rank() == {rank}: {setting}\ndist.barrier()\na @ a\n" for rank in (0, 1))
    start = f'import torch, torch.distributed as dist\ndist.init_process_group("nccl")\na = torch.ones({SIDE}, {SIDE})\n'
    found = step(start + first + second, ranks=2, options=("--cluster", cluster))["products"]
    assert [(each["dtype"], each["share"]) for each in found] == [("tf32", 0.75), ("float32", 0.25)]


def test_a_script_under_autocast_is_timed_in_what_it_computes_in(step) -> None:
    text = MULTIPLIES.replace("a @ a", "with torch.autocast('cuda', torch.bfloat16): a @ a")
    (product,) = step(text, "pass", ranks=1)["products"]
    assert product == {"dtype": "bfloat16", "share": 1.0, "peak_flops": DEVICES["h100"].peak_flops["bfloat16"]}


def test_the_head_of_the_report_says_what_is_timed(emu, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(MULTIPLIES.replace("a @ a", "a @ a; torch.set_float32_matmul_precision('high'); (a @ a) @ a") + SENDS)
    ran = emu("run", "--ranks", "4", *RAN, str(path), "pass")
    assert ran.out.splitlines()[1] == (
        "timed as it ran: products in tf32, at a peak of 494.7 TFLOP/s (66.7 % of the FLOPs) and float32, at a peak of "
        "67 TFLOP/s (33.3 % of the FLOPs); messages in float32"
    )
    told = emu("run", "--ranks", "4", *RAN, "--dtype", "bfloat16", str(path), "pass").out.splitlines()
    assert told[1] == "timed float32 as bfloat16: products in bfloat16, at a peak of 989 TFLOP/s; messages in bfloat16"
    assert "what ran in float32 is timed as bfloat16" in " ".join(told)


def test_a_trace_is_replayed_as_its_command_timed_it(emu, tmp_path: Path) -> None:
    path, ran, trained = (tmp_path / name for name in ("script.py", "ran.trace", "trained.trace"))
    path.write_text(MULTIPLIES + SENDS)
    script = emu("run", "--ranks", "4", *RAN, "--json", "--trace", str(ran), str(path), "pass").json[0]
    model = emu(*TRAIN, "--trace", str(trained)).json
    assert (load(ran).command, load(trained).command) == ("run", "train")
    again = emu("replay", str(ran), *RAN, "--json").json[0]
    assert (again["dtype"], again["step_time_s"]) == ("as-ran", script["step_time_s"])
    again = emu("replay", str(trained), "--topology", "ub-mesh:board", "--json").json[0]
    assert (model["dtype"], again["dtype"], again["step_time_s"]) == ("bfloat16", "bfloat16", model["step_time_s"])
    other = emu("replay", str(trained), "--topology", "ub-mesh:board", "--dtype", "as-ran", "--json").json[0]
    assert (other["messages_in"], other["products"][0]["dtype"]) == (["float32"], "float32")
    assert other["mfu"] == pytest.approx(_mfu(model, other), rel=1e-9)


def _mfu(model: dict[str, float], other: dict[str, float]) -> float:
    """Return the MFU of a step of another time, by the peak of another dtype."""
    peaks = DEVICES["h100"].peak_flops
    return model["mfu"] * model["step_time_s"] / other["step_time_s"] * peaks["bfloat16"] / peaks["float32"]


def test_a_trace_that_names_no_command_is_timed_as_bfloat16(emu, tmp_path: Path) -> None:
    path, ran = tmp_path / "script.py", tmp_path / "ran.trace"
    path.write_text(SENDS)
    assert emu("run", "--ranks", "4", *RAN, "--trace", str(ran), str(path)).code == 0
    old = load(ran)
    save(replace(old, meta=tuple(entry for entry in old.meta if entry[0] != "command")), ran)
    told = emu("replay", str(ran), *RAN).out.splitlines()
    assert told[1] == "timed float32 as bfloat16: messages in bfloat16"


def test_a_device_without_float32_is_refused_before_the_script_runs(emu, tmp_path: Path) -> None:
    path, device = tmp_path / "script.py", tmp_path / "mine.toml"
    path.write_text("raise SystemExit(3)")
    device.write_text('memory_bandwidth = "1TB/s"\npeak_flops = { bfloat16 = 1e12 }\n')
    done = emu("run", "--ranks", "1", *RAN, "--device", str(device), str(path))
    assert (done.code, done.out) == (2, "")
    assert "mine: peak_flops must be given for float32 too, because most scripts compute in it, got 'bfloat16'" in done.err
    assert emu("run", "--ranks", "1", *RAN, "--device", str(device), "--dtype", "bfloat16", str(path)).code == 3


def test_a_dtype_that_is_none_is_refused(emu, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SENDS)
    done = emu("run", "--ranks", "4", *RAN, "--dtype", "as-run", str(path))
    assert (done.code, done.out) == (2, "")
    assert "no dtype is called 'as-run'; did you mean as-ran" in done.err


def test_a_device_without_a_printed_peak_says_what_is_assumed(step) -> None:
    ran = step(MULTIPLIES, "pass", ranks=1, options=("--device", "tpuv4"))
    assert ran["products"][0]["peak_flops"] == pytest.approx(275e12 / 6, rel=1e-3)
    assert [told for told in ran["assumptions"] if told.startswith("no source prints a peak of tpuv4 for float32: ")]
    reduced = step(MULTIPLIES, "pass", ranks=1, options=("--device", "tpuv4", "--dtype", "bfloat16"))
    assert "no source prints" not in json.dumps(reduced["assumptions"])


def test_the_settings_of_torch_are_as_before() -> None:
    assert torch.backends.cuda.matmul.fp32_precision == "none"
    assert torch.get_float32_matmul_precision() == "highest"
