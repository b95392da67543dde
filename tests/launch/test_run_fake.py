"""`emu run --cluster fake`: a script on more ranks than could run."""

from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
TINY = ("--layers", "2", "--hidden", "64", "--heads", "8", "--kv", "4", "--ffn", "192", "--vocab", "256", "--seq", "64")
FAKE = ("run", "--cluster", "fake", "--topology", "servers:nodes=32", "--ranks")


def test_a_step_on_more_ranks_than_run_is_told_and_the_ranks_that_were_traced_with_it(emu, tmp_path):
    saved = tmp_path / "step.trace"
    done = emu(*FAKE, "64", "--json", "--trace", str(saved), str(SCRIPTS / "llama.py"), *TINY, "--tp", "4")
    assert done.code == 0, done.err
    assert "emu: 6 ranks are traced: 0, 1, 3, 4, 60, 63\n" in done.err
    assert "step 0: loss ?\n" in done.err
    (step,) = done.json
    assert step["ranks"] == 64
    assert set(step["exposed_comm_by_axis_s"]) == {"dp", "tp"}
    again = emu("replay", str(saved), "--topology", "servers:nodes=32", "--json")
    assert again.code == 0, again.err
    assert again.json[0]["step_time_s"] == step["step_time_s"]


def test_what_needs_data_ends_in_one_line(emu, tmp_path):
    script = tmp_path / "routed.py"
    script.write_text("import torch\ncounts = torch.rand(8).long().tolist()\n")
    done = emu(*FAKE, "64", str(script))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "routed.py:2 needs the content of a tensor" in done.err


def test_roles_are_of_ranks_without_data(emu):
    done = emu("run", "--ranks", "4", "--topology", "ub-mesh:board", "--roles", "0,1", str(SCRIPTS / "ddp.py"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--roles must be left out where all ranks run" in done.err
    done = emu(*FAKE, "4", "--roles", "0,x", str(SCRIPTS / "ddp.py"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--roles must be ranks of 0..3 with commas between them, got '0,x'" in done.err
