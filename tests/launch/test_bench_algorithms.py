"""Several algorithms of one command, and options that are given twice."""

import pytest

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
THREE = """latency = "1us"
[npus]
gpu = 6
[switches]
server = 3
rail = 2
core = 1
[[links]]
between = ["rail", "core"]
bandwidth = "50GB/s"
[[links]]
between = ["gpu", "server"]
wiring = "blocks"
bandwidth = "450GB/s"
[[links]]
between = ["gpu", "rail"]
wiring = "turns"
bandwidth = "50GB/s"
"""


def test_several_algorithms_have_a_row_each_and_what_one_assumes_is_told_of_it(emu, tmp_path) -> None:
    (tmp_path / "three.toml").write_text(THREE)
    where = ("--topology", SWITCH, "--topology", str(tmp_path / "three.toml"))
    args = ("bench", "all_reduce", "-b", "1KiB", "-e", "4KiB", "-f", "4", "--ranks", "6", "--timing-only")
    asked = ("--algorithm", "in-switch", "--algorithm", "nccl", "--algorithm", "ring", "--algorithm", "in-switch")
    picture = tmp_path / "several.png"
    done = emu(*args, *asked, *where, "--png", str(picture), "--json")
    assert [(row["topology"], row["size_bytes"]) for row in done.json] == [
        (name, size) for name in (where[1], where[3]) for _ in range(3) for size in (1024, 4096)
    ]
    assert [row["algorithm"] for row in done.json[:2] + done.json[4:6]] == ["in-switch"] * 2 + ["ring"] * 2
    assert [bool(row["chosen"]) for row in done.json] == ([False] * 2 + [True] * 2 + [False] * 2) * 2
    alone = emu(*args, "--algorithm", "ring", *where, "--json").json
    of_ring = done.json[4:6] + done.json[10:]
    assert [row["time_s"] for row in of_ring] == [row["time_s"] for row in alone]
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = emu(*args, *asked, *where).out.partition("\nAssumed:\n")[2].splitlines()
    assert "- messages share the bandwidth of a link max-min fairly" in told
    adds = [line for line in told if "taken to add" in line]
    assert [line.startswith(f"- in-switch on {name}: ") for line, name in zip(adds, where[1::2], strict=True)] == [True] * 2
    on_one = emu(*args, *asked, *where[:2]).out.partition("\nAssumed:\n")[2].splitlines()
    assert [line.partition(":")[0] for line in on_one if "taken to add" in line] == ["- in-switch"]


def test_all_stands_alone_among_algorithms(emu) -> None:
    done = emu("bench", "all_reduce", "--algorithm", "all", "--algorithm", "nccl", "--topology", SWITCH, "--size", "1KiB")
    said = "--algorithm must be names, or all alone, got 'all, nccl'; leave the names out: it has them, too"
    assert (done.code, done.err) == (2, f"emu: bench: {said}\n")


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (("bench", "all_reduce", "--topology", SWITCH, "--size", "1KiB", "--size", "2KiB"), "--size"),
        (("bench", "all_reduce", "--topology", SWITCH, "--size", "1KiB", "-d", "int8", "--dtype", "int16"), "--dtype"),
        (("show", "collective", "all_reduce", "ring", "--ranks", "4", "--ranks", "8"), "--ranks"),
    ],
)
def test_an_option_of_one_value_that_is_given_twice_is_refused(emu, args, flag) -> None:
    done = emu(*args)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"emu: {flag}: given twice; it takes one value, so leave all but one out"
