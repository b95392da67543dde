"""`emu faults` as a person uses it, and what InfiniteHBD prints of the public trace."""

import base64
import re
from collections import Counter

import pytest
from matplotlib.image import imread

from emu import InputError, faults
from launch.front.fault_model import days_of, read_share

BESIDE = ("infinitehbd:k=3", "infinitehbd:k=2", "big-switch:n=2880", "nvl:72", "nvl:576", "tpuv4:cubes=5x3x3")


def topologies(words):
    return [part for word in words for part in ("--topology", word)]


def test_the_public_trace_wastes_what_infinitehbd_prints_for_tp_32(emu) -> None:
    """Figure 13: 0.53 %, 10.04 % and 7.56 %; the middle of seeds, as the paper's order of servers is not published."""
    runs = [emu("faults", *topologies(BESIDE), "--json", "--seed", str(seed)).json["rows"] for seed in (1, 2, 3)]
    waste = {word: sorted(run[i]["waste"] for run in runs)[1] for i, word in enumerate(BESIDE)}
    assert waste["infinitehbd:k=3"] == pytest.approx(0.0053, abs=0.001)
    assert waste["nvl:72"] == pytest.approx(0.1004, abs=0.005)
    assert waste["tpuv4:cubes=5x3x3"] == pytest.approx(0.0756, rel=0.1)
    assert waste["infinitehbd:k=3"] == pytest.approx(waste["big-switch:n=2880"], abs=0.001)
    assert waste["infinitehbd:k=3"] < waste["nvl:576"] < waste["nvl:72"]


def test_a_table_says_what_it_rests_on(emu) -> None:
    done = emu("faults", *topologies(["nvl:72"]), "--tp", "16,32", "--checkpoint", "1s", "--restart", "60s")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["topology", "copies", "NPUs", "TP"]
    assert [line.split()[:4] for line in lines[2:4]] == [["nvl:72", "40", "2880", "16"], ["nvl:72", "40", "2880", "32"]]
    goodput, groups = (float(lines[3].split()[i]) for i in (-1, 8))
    assert 0 < goodput < groups
    assert "348-day trace of 400 servers" in done.out
    assert "drawn with seed 0" in done.out


def test_drawn_faults_have_their_rate_and_a_domain_adds_its_own(emu) -> None:
    drawn = ("faults", *topologies(["big-switch:n=1024"]), "--npus", "1024", "--mttr", "2d", "--tp", "1", "--json")
    alone = emu(*drawn, "--mtbf", "98d", "--days", "3y").json["rows"][0]
    by_afr = emu(*drawn, "--afr", "50%", "--days", "3y").json["rows"][0]
    both = emu(*drawn, "--mtbf", "98d", "--days", "3y", "--domain", "npus=64,mtbf=18d,mttr=2d").json["rows"][0]
    assert alone["faulty"] == pytest.approx(0.02, rel=0.1)
    assert by_afr["faulty"] == pytest.approx(2 / 732, rel=0.2)
    assert both["faulty"] == pytest.approx(1 - 0.98 * 0.9, rel=0.1)


def test_the_same_seed_gives_the_same_bytes(emu) -> None:
    asked = ("faults", *topologies(["nvl:72"]), "--rate", "1.17%", "--draws", "20", "--json")
    assert emu(*asked).out == emu(*asked).out != emu(*asked, "--seed", "1").out


def test_the_picture_has_a_line_a_machine(emu, tmp_path) -> None:
    path = tmp_path / "waste.png"
    assert emu("faults", *topologies(["nvl:72", "sip-ring:size=32,rings=90"]), "--png", str(path)).code == 0
    colours = {tuple(round(float(part) * 255) for part in pixel[:3]) for pixel in imread(path).reshape(-1, 4)}
    assert {(31, 119, 180), (255, 127, 14)} <= colours


def test_goodput_is_mfu_times_what_works_times_what_restarts_leave(emu) -> None:
    asked = ("faults", *topologies(["nvl:72"]), "--checkpoint", "60s", "--restart", "300s", "--json")
    plain, scaled = (emu(*asked, *more).json["rows"][0] for more in ((), ("--mfu", "40%")))
    assert scaled["goodput"] == pytest.approx(0.4 * plain["goodput"])
    faults_a_day = 1 / optimal_mtbf_days(plain)
    assert 1 < faults_a_day < 5  # 582 faults of 400 servers in 348 days, of which 360 are taken
    assert plain["goodput"] < plain["availability"]


def optimal_mtbf_days(row):
    """The mean time between faults by which the interval is the best: Young's, to a tenth."""
    return row["checkpoint_interval_s"] ** 2 / (2 * 60) / 86400


def test_a_domain_interrupts_a_job_once_however_many_nodes_it_takes_along(emu) -> None:
    """Domains of 16 nodes fail at the times of 16 times fewer, larger nodes: the best interval of checkpoints is the same."""
    asked = ("faults", *topologies(["big-switch:n=1024"]), "--npus", "1024", "--tp", "1", "--days", "3y", "--checkpoint", "60s")
    rare = ("--mtbf", "1000000y", "--mttr", "1h", "--npus-per-node", "4", "--domain", "npus=64,mtbf=200d,mttr=1d")
    domains = emu(*asked, *rare, "--json").json["rows"][0]
    nodes = emu(*asked, "--mtbf", "200d", "--mttr", "1d", "--npus-per-node", "64", "--json").json["rows"][0]
    assert domains["checkpoint_interval_s"] == pytest.approx(nodes["checkpoint_interval_s"], rel=0.1)


def test_a_job_waits_while_fewer_npus_find_groups_and_lost_npus_have_a_price(emu) -> None:
    asked = ("faults", *topologies(["nvl:72"]), "--job", "2560", "--prices", "infinitehbd", "--npu", "dollars=30000", "--json")
    found = emu(*asked).json
    [row] = found["rows"]
    shorter = [2880 * (1 - wasted) for wasted in row["wasted"]]  # at most: some are faulty too
    assert 0 < row["job_waiting"] < 1
    assert min(shorter) < 2560 + 2880 * 0.08
    assert row["aggregate_dollars_per_npu"] == pytest.approx(9563.2 + 30000 * (1 - row["availability"]))
    assert "at 30000 $ each" in found["assumptions"][-1]
    assert "job waits" in emu(*asked[:-1]).out
    both = ["emu" if word == "infinitehbd" else word for word in asked]  # a book with prices from low to high
    [same] = emu(*both).json["rows"]
    assert same["aggregate_dollars_per_npu"] == row["aggregate_dollars_per_npu"]
    assert same["high_aggregate_dollars_per_npu"] == pytest.approx(row["aggregate_dollars_per_npu"] + 16000 - 9563.2)
    assert "high_aggregate_dollars_per_npu" not in row
    assert emu(*both[:-1]).out.splitlines()[2].split()[-1] == f"{same['high_aggregate_dollars_per_npu']:.2f}"


@pytest.mark.parametrize(
    ("text", "days"), [("1y", 365), ("3y", 1095), ("0.5y", 182.5), ("60d", 60), ("0.25d", 0.25), ("12h", 0.5), ("36h", 1.5)]
)
def test_a_span_is_of_hours_days_or_years_of_365_days(text: str, days: float) -> None:
    assert days_of(text, "--mttr") == pytest.approx(days)


@pytest.mark.parametrize("text", ["", "0h", "0.0y", "12", "h", "-1d", "1.d", "1 d", "1w", "1dd", "1e3h"])
def test_what_is_no_span_is_refused(text: str) -> None:
    match = re.escape(f"faults: --mttr must be hours, days or years above 0, such as 12h, 60d or 3y, got {text!r}")
    with pytest.raises(InputError, match=match):
        days_of(text, "--mttr")


def test_a_share_that_fails_in_a_year_is_a_mean_time_to_failure_of_so_many_years(emu) -> None:
    """A tenth fails in a year of 365 days: one fails every ten years, which are as many days."""
    asked = "faults", "--topology", "nvl:72", "--mttr", "5d", "--seed", "3", "--json"
    share, span, other = (emu(*asked, *words).json for words in (("--afr", "10%"), ("--mtbf", "3650d"), ("--mtbf", "3660d")))
    assert share["rows"] == span["rows"] != other["rows"]


def test_a_report_has_all_machines_and_needs_no_network(emu, tmp_path) -> None:
    path = tmp_path / "faults.html"
    words = ["nvl:72", "sip-ring:size=32,rings=90"]
    assert emu("faults", *topologies(words), "--html", str(path)).code == 0
    text = path.read_text().replace("<wbr>", "")
    assert all(text.count(word) >= 2 for word in words)  # the head and the table
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', text)
    drawn = base64.b64decode(picture).decode()
    assert all(f"{word} (" in drawn for word in words)  # the key of the picture
    colours = [found for found in re.findall(r"stroke: (#\w+)", drawn) if found in ("#1f77b4", "#ff7f0e")]
    assert Counter(colours) == {"#1f77b4": 3, "#ff7f0e": 3}  # a line of each machine in both panels, and in the key
    assert "http" not in text.replace("http-equiv", "")
    first = path.read_bytes()
    emu("faults", *topologies(words), "--html", str(path))
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--job", "2881"], "faults: --job must be 1..2880, the NPUs in groups of 32 that infinitehbd:k=3 has room for"),
        (["--prices", "infinitehbd"], "faults: --prices and --npu go together; give both or none"),
        (
            ["--mfu", "40%"],
            "faults: --mfu needs --checkpoint; add --checkpoint, or leave --mfu out",
        ),
        (["--tp", "30"], "infinitehbd: NPUs of a group must be a multiple of 4, the GPUs of a node, or fewer, got 30"),
        (["--tp", "4096"], "infinitehbd:k=3: NPUs of a group must be 1..2880, got 4096; take a smaller group"),
        (["--tp", "x"], "faults: --tp must be whole numbers of 1 or more, such as 32 or 8,16,32, got 'x'"),
        (["--npus", "64"], "faults: --npus must be 2880 or more, those of infinitehbd:k=3, got 64"),
        (["--rate", "2"], "faults: --rate must be a share of 0 or more and below 1, such as 1.17% or 0.0117, got '2'"),
        (["--mtbf", "3"], "faults: --mtbf must be hours, days or years above 0, such as 12h, 60d or 3y, got '3'"),
        (["--mtbf", "3y"], "faults: --mtbf or --afr, and --mttr go together; give both or none"),
        (
            ["--afr", "0"],
            "faults: --afr must be a share above 0 and below 1, such as 4%, got '0'; nodes that never fail: --rate 0",
        ),
        (["--mtbf", "3y", "--rate", "1%"], "faults: --rate and --mtbf exclude each other; give one of them"),
        (["--rate", "1%", "--checkpoint", "1s"], "faults: --checkpoint needs faults with times"),
        (["--domain", "npus=64"], "faults: --domain must be npus=64,mtbf=1y,mttr=4h, each once, got 'npus=64'"),
        (["--domain", "npus=6,mtbf=1y,mttr=1d"], "--domain: npus must be a multiple of 4, the NPUs of a node, got '6'"),
        (
            ["--prices", "infinitehbd", "--npu", "x"],
            "faults: --npu must be dollars=30000,watts=700, or one of them, of 0 or more",
        ),
        (
            ["--mtbf", "1000000y", "--mttr", "1d", "--checkpoint", "1s"],
            "faults: --checkpoint needs a fault, and none begins in the time looked at; give more --days, or another --log",
        ),
        (["--npus-per-node", "3"], "faults: --npus-per-node must be a divisor of the 8 of a server of the log, got 3"),
        (["--log", "none.csv"], "--log: cannot read 'none.csv': No such file or directory"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_counted(emu, asked, line) -> None:
    done = emu("faults", *topologies(["infinitehbd:k=3"]), *asked)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"emu: {line}")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("asked", [{"rate": "1%"}, {"mtbf": "1000000y", "mttr": "1d"}])
def test_goodput_without_faults_in_time_is_refused_before_groups_are_counted(monkeypatch, asked) -> None:
    monkeypatch.setattr("launch.front.machine_faults.waste_of", lambda *_: pytest.fail("groups were counted"))
    with pytest.raises(InputError, match="faults: checkpoint needs"):
        faults(topology="nvl:72", checkpoint="60s", **asked)


def test_a_machine_larger_than_the_log_is_one_line(emu) -> None:
    done = emu("faults", *topologies(["infinitehbd:dims=8x128x2x4"]))
    assert done.code == 2
    assert "the machine must be at most 400 hosts of 8 NPUs, those of the log, got 1024; take fewer NPUs, or" in done.err


def test_a_share_that_is_a_small_number_is_not_0() -> None:
    """One in ten million nodes fails in a year."""
    assert read_share(1e-7) == ("0.0000001", 1e-7)
    found = faults(topology="nvl:72", afr=1e-7, mttr="1d")
    assert found.rows[0].waste.faulty == 0
