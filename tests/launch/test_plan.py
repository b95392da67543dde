"""`emu plan`: the table, the JSON, the picture, and what is refused."""

import pytest
from PIL import Image

ASKED = ("plan", "--model", "llama-tiny", "--npus", "2", "--global-batch", "1", "--seq", "64", "--topology", "ub-mesh:board")


def test_the_table_ranks_plans_and_says_why_each_loses(emu, tmp_path):
    done = emu(
        *ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--beside", "tp=2", "--png", str(tmp_path / "a.png")
    )
    assert done.code == 0
    assert done.out.startswith("llama-tiny on 2 h100 of ub-mesh:board, 1 sequences of 64 tokens, as megatron asks\n\n")
    assert "\n1" in done.out or "\n 1  " in done.out
    assert "why it loses against the first:\n 2  " in done.out
    assert "* " in done.out
    assert "a plan of yours (--beside)" in done.out
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 1000
    again = emu(*ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--json").json
    assert again["rows"][0]["why"] == ""
    assert [row["step_time_s"] for row in again["rows"]] == sorted(row["step_time_s"] for row in again["rows"])
    assert again["timed"] <= again["candidates"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--npus", "0"), "Invalid value for '--npus': 0 is not in the range x>=1."),
        (
            ("--npus", "3", "--stack", "software=megatron"),
            "plan: npus must be such that llama-tiny with a global batch of 1 and sequences of 64 tokens",
        ),
        (("--beside", "tp=4"), "plan: beside must be a plan of the 2 NPUs, got 'tp=4,microbatch=1 of 4'"),
        (("--device", "h101"), "no device is called 'h101'; did you mean h100"),
    ],
)
def test_what_cannot_be_searched_is_one_line(emu, words, line, tmp_path):
    done = emu(*ASKED, "--cache", str(tmp_path), *words)
    assert done.code == 2
    assert line in done.err
    assert done.err.count("\n") == 1
