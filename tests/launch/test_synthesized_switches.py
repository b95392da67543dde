"""The command `emu synthesize` on a topology whose switches copy and add."""


def test_switches_that_add_are_told_and_have_no_place_in_a_file_for_msccl(emu, tmp_path):
    words = "synthesize", "all_reduce", "--topology", "dgx-h100:adds=yes", "--size", "64MiB"
    told = emu(*words).out
    assert "in switches: trees that pass switches which copy and add" in told
    done = emu(*words, "--xml", str(tmp_path / "a.xml"))
    assert done.code == 2
    assert "helpers" in done.err.splitlines()[-1]
