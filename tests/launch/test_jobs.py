"""The command `emu jobs`: its report, its settings, and what it refuses."""

from pathlib import Path

import pytest

import emu as library
from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.trace.trace_file import save

LINE = ("--topology", "ring:n=8,bandwidth=1GB/s,latency=0ns")
TWO = """
[settings]
steps = 3

[[job]]
name = "even"
operation = "all_reduce"
algorithm = "ring"
size = "4MB"
ranks = 4
pause = "2ms"
npus = [0, 2, "4", 6]

[[job]]
name = "odd"
operation = "all_reduce"
algorithm = "ring"
size = "4MB"
ranks = 4
pause = "2ms"
npus = "1,3,5,7"
"""
TRAINS = """
[[job]]
name = "trains"
model = "llama-tiny"
plan = "dp=2"
global_batch = 2
seq = 16
algorithm = ["all_reduce=ring"]
"""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(TWO)
    save(generate(find_model("llama-tiny"), Plan(dp=2, global_batch=2, seq=16), Stack()), Path("step.trace"))


def test_the_report_tells_who_slows_whom_over_which_links(emu):
    said = emu("jobs", "two.toml", *LINE)
    assert said.code == 0
    for line in (
        "even  all_reduce of 3.815 MiB after 2 ms      4  0,2,4,6       1     0 s        8 ms   14 ms  14 ms to 14 ms",
        "slow-down       1.750 in the mean, 1.750 of the worst job",
        "odd        1.750  1.000",
        "even with odd: 8 links, longest on NPU 0 to NPU 1, both send for 12 ms a step; busy 85.7 %",
    ):
        assert line in said.out


def test_settings_are_compared_in_one_table(emu):
    rows = emu("jobs", "two.toml", *LINE, "--shift", "none", "--shift", "circle", "--json").json
    assert [(row["shift"], row["slow_down"]) for row in rows] == [("none", 1.75), ("circle", 1.5)]
    assert [job["begin_s"] for job in rows[1]["jobs"]] == [0, 0.002]
    said = emu("jobs", "two.toml", *LINE, "--shift", "none", "--shift", "circle").out
    assert "shortest steps in the mean: packed, shift circle" in said


def test_a_dict_is_a_file_and_an_answer_draws_itself():
    loop = {"operation": "all_reduce", "size": 4_000_000, "ranks": 4, "algorithm": "ring", "pause": 0.002}
    answer = library.jobs({"job": [loop | {"npus": "0,2,4,6"}, loop | {"npus": "1,3,5,7"}]}, topology=LINE[1], steps=2)
    assert (answer.slow_down, [job.name for job in answer.jobs]) == (1.75, ["job 0", "job 1"])
    assert answer.to_dict()[0]["pairs"] == [[1.0, 1.75], [1.75, 1.0]]
    assert "1.750 x" in {text.get_text().partition("\n")[2] for text in answer.plot().get_yticklabels()}
    answer.save("jobs.html")
    answer.save_timeline("jobs.json")
    assert "odd" not in Path("jobs.html").read_text()
    assert '"name":"step 2"' in Path("jobs.json").read_text()


def test_a_model_a_trace_and_a_loop_share_a_fabric(emu):
    Path("mixed.toml").write_text(
        f'{TWO}\n{TRAINS}\n[[job]]\nname = "again"\ntrace = "step.trace"\nalgorithm = "all_reduce=ring"\n'
    )
    (row,) = emu("jobs", "mixed.toml", "--topology", "torus:dims=4x4,bandwidth=1GB/s,latency=0ns", "--json").json
    by_name = {job["name"]: job for job in row["jobs"]}
    assert {name: job["ranks"] for name, job in by_name.items()} == {"even": 4, "odd": 4, "trains": 2, "again": 2}
    assert (
        by_name["trains"]["alone_s"]
        == library.estimate(
            model="llama-tiny",
            plan="dp=2",
            topology="torus:dims=4x4,bandwidth=1GB/s,latency=0ns",
            global_batch=2,
            seq=16,
            algorithm=["all_reduce=ring"],
        ).step_time_s
    )
    assert by_name["again"]["alone_s"] == pytest.approx(by_name["trains"]["alone_s"], rel=0.2)
    assert all(job["steps"] >= 3 for job in row["jobs"])


def bad(old: str, new: str) -> str:
    """The file of two jobs with one thing changed."""
    assert old in TWO
    return TWO.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bad('"1,3,5,7"', '"1,3,4,7"'), "jobs: npus of odd must be NPUs that no job has yet, got 'NPU 4 of even'"),
        (bad('"1,3,5,7"', '"1,3,5,5"'), "jobs: npus of odd must be NPUs that no job has yet, got 5"),
        (bad('"1,3,5,7"', '"1,3,5,9"'), "jobs: npus of odd must be 0 to 7, the NPUs of ring:n=8"),
        (bad('"1,3,5,7"', '"1,3,5"'), "jobs: npus of odd must be one for each of its 4 ranks, got 3"),
        (bad('"1,3,5,7"', '"1-x"'), "'bad.toml': odd: npus must be numbers and ranges, such as '0-7,16', got '1-x'"),
        (bad('pause = "2ms"', 'start = "-1s"'), "'bad.toml': even: start must be a time of 0 or more such as 500ns or 1.5us"),
        (bad("ranks = 4", "ranks = 0"), "'bad.toml': even: ranks must be a whole number of 1 or more, got 0"),
        (bad("ranks = 4", "ranks = 1"), "'bad.toml': even: ranks must be 2 to 1048576, got 1"),
        (bad("ranks = 4", "weight = 2"), "'bad.toml': even: ranks must be given beside operation, got 'none'"),
        (bad("ranks = 4", "ranks = 4\nweight = 99"), "jobs: weight of even must be a whole number from 1 to 64, got 99"),
        (bad('"1,3,5,7"', '"1-9999999"'), "'bad.toml': odd: npus must be below 1048576, got '1-9999999'"),
        (bad("ranks = 4", "ranks = 999999999999"), "'bad.toml': even: ranks must be 2 to 1048576, got 999999999999"),
        (bad('algorithm = "ring"', "algorithm = 3"), "'bad.toml': even: algorithm must be a text, or a list of texts, got 3"),
        (bad('pause = "2ms"', 'stack = "software=megatron"'), "'bad.toml': even: unknown setting 'stack'; "),
        ("[[job]]\ntrace = 3\n", "'bad.toml': job 0: trace must be a file or a folder, got 3"),
        (bad('name = "odd"', 'name = "a\\nb"'), "'bad.toml': job 1: name must be a text of one line, got 'a\\nb'"),
        (bad("steps = 3", "placement = 3"), "jobs: placement must be a text, or a list of texts, got 3"),
        (
            bad("4MB", "4000000")
            + "weight = 61\n"
            + TRAINS
            + "weight = 59\n"
            + TRAINS.replace('"trains"', '"more"')
            + "weight = 64\n"
            + TRAINS.replace('"trains"', '"most"')
            + "weight = 53\n",
            "jobs: weights must be numbers with a common multiple of at most 1048576, got 12207808; take powers of 2",
        ),
        (bad('"4MB"', '"4M"'), "'bad.toml': even: size must be a size such as 64MiB, 1GB or 4096B, got '4M'"),
        (
            bad('"all_reduce"', '"all_reduced"'),
            "'bad.toml': even: no operation is called 'all_reduced'; did you mean all_reduce",
        ),
        (bad('algorithm = "ring"', 'algorithm = "rong"'), "'bad.toml': even: no all_reduce algorithm is called 'rong'"),
        (bad("pause =", "wait ="), "'bad.toml': even: unknown setting 'wait'"),
        (bad('name = "odd"', 'name = "even"'), "jobs: name must be another for each job, got 'even'"),
        (bad('name = "odd"', "name = 3"), "'bad.toml': job 1: name must be a text of one line, got 3"),
        (
            bad('operation = "all_reduce"', 'mode = "x"'),
            "'bad.toml': even: the job must be one with a model, a trace or an operation",
        ),
        (bad("steps = 3", "steps = 0"), "jobs: steps must be 1 or more, got 0"),
        (bad("steps = 3", 'time = "exact"'), "jobs: time must be auto, whole or composed, got 'exact'"),
        (
            bad("steps = 3", 'placement = "dense"'),
            "jobs: no placement is called 'dense'; known: own, packed, rails, random, segments, spread",
        ),
        (
            bad("steps = 3", 'placement = "spread:unit=0"'),
            "placement spread: unit must be a whole number of 1 or more, got '0'",
        ),
        (bad("steps = 3", 'placement = "packed:unit=2"'), "placement packed: unknown setting 'unit'; it takes none"),
        (bad("steps = 3", 'shift = "round"'), "jobs: shift must be none or circle, got 'round'"),
        (
            bad("steps = 3", 'share = "equal"'),
            "jobs: share must be weights, fair, intensity, priority, slices, lanes or planes, got 'equal'",
        ),
        (
            bad("steps = 3", 'share = "lanes"'),
            "jobs: share must be weights, fair, intensity, priority, slices or planes where --fabric is fluid, got 'lanes'; "
            "the fluid fabric has no lanes; slices keep jobs apart there",
        ),
        (bad("steps = 3", 'share = "planes"'), "jobs: ring:n=8,bandwidth=1GB/s,latency=0ns has no planes; take one whose NICs"),
        (bad("steps = 3", 'routes = "free"'), "jobs: routes must be own or least-loaded, got 'free'"),
        (bad("steps = 3", "routes = 3"), "jobs: routes must be a text, or a list of texts, got 3"),
        (bad("ranks = 4", "ranks = 4\nplanes = 0"), "jobs: ring:n=8,bandwidth=1GB/s,latency=0ns has no planes; take one whose"),
        (bad("ranks = 4", 'ranks = 4\nplanes = "a"'), "'bad.toml': even: planes must be numbers and ranges, such as '0-7,16'"),
        (
            bad("ranks = 4", "ranks = 4\npriority = -1"),
            "even: priority must be a whole number of 0 or more, got -1",
        ),
        (bad("ranks = 4", "ranks = 4\npriority = 64"), "jobs: priority of even must be a whole number from 0 to 63, got 64"),
        (bad("[settings]", "[setting]"), "'bad.toml': unknown setting 'setting'; did you mean settings?"),
        ("[settings]\nsteps = 2\n", "'bad.toml': job must be a table for each job, got 'none'; write a [[job]] for each"),
        ("[[job]\n", "bad.toml: no TOML: "),
        (TRAINS.replace("dp=2", "dp=16"), "'bad.toml': trains: "),
        (TRAINS.replace("dp=2", "dp=2,vp=2"), "'bad.toml': trains: "),
        (TRAINS.replace("llama-tiny", "llama3-8b"), "jobs: trains: llama3-8b by dp=2 takes"),
        (TRAINS.replace("llama-tiny", "llama-tinny"), "'bad.toml': trains: no model is called 'llama-tinny'; did you mean"),
        (
            TWO.replace("npus", "# npus") + TRAINS,
            "jobs: ranks of even, odd, trains must be at most 8, the free NPUs of ring:n=8",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(emu, text, said):
    Path("bad.toml").write_text(text)
    done = emu("jobs", "bad.toml", *LINE)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert said in done.err


@pytest.mark.parametrize("given", [None, 3, [{}]])
def test_jobs_are_a_file_or_a_dict(given):
    with pytest.raises(InputError, match=r"jobs must be a \.toml file or a dict of the same form, got"):
        library.jobs(given, topology=LINE[1])


def test_an_empty_setting_is_that_of_the_command():
    loop = {"operation": "all_reduce", "size": 4000, "ranks": 2}
    answer = library.jobs({"settings": {"placement": [], "shift": ""}, "job": [loop]}, topology=LINE[1], steps=1)
    assert [(row.placement, row.shift) for row in answer] == [("packed", "none")]


def test_jobs_without_common_links_are_not_shifted():
    loop = {"operation": "all_reduce", "algorithm": "ring", "size": 4000, "ranks": 4}
    where = "servers:nodes=2,gpus=4"
    answer = library.jobs({"job": [loop, loop]}, topology=where, shift="circle", steps=1)
    assert [(job.begin_s, job.slow_down) for job in answer.jobs] == [(0, 1), (0, 1)]


def test_packets_have_no_weights(emu):
    Path("heavy.toml").write_text(bad("ranks = 4", "ranks = 4\nweight = 2"))
    said = emu("jobs", "heavy.toml", *LINE, "--fabric", "packets").err
    assert "jobs: weight of even must be 1 where --fabric is packets, got 2; packets have no weights" in said
    said = emu("jobs", "two.toml", *LINE, "--fabric", "packets", "--share", "intensity").err
    others = "weights, fair, priority, lanes or planes where --fabric is packets"
    assert f"jobs: share must be {others}, got 'intensity'; packets have no weights" in said
    said = emu("jobs", "two.toml", *LINE, "--fabric", "packets", "--share", "slices").err
    assert f"jobs: share must be {others}, got 'slices'; packets of jobs are kept apart by lanes" in said
    spread = ("--fabric", "packets", "--network", "roce:route=in-turn", "--share")
    for share in ("lanes", "priority"):
        said = emu("jobs", "two.toml", *LINE, *spread, share).err
        assert "--network must be route=hash where jobs have lanes, priorities or chosen routes, got 'route=in-turn'" in said


def test_shares_and_routes_are_compared_in_one_table(emu):
    """Two jobs in two planes of an HPN segment have one port of a NIC each; the others have both."""
    Path("apart.toml").write_text(TWO.replace("npus", "# npus").replace('name = "odd"', 'name = "odd"\npriority = 1'))
    words = ("--share", "weights", "--share", "priority", "--share", "slices", "--share", "planes")
    where = ("--topology", "hpn:segment:dims=4x2", "--placement", "spread")
    done = emu("jobs", "apart.toml", *where, *words, "--routes", "own", "--routes", "least-loaded")
    assert done.code == 0, done.err
    assert [line.split()[2:5] for line in done.out.splitlines()[2:10]].count(["none", "planes", "own"]) == 1
    (row,) = emu("jobs", "apart.toml", *where, "--share", "planes", "--json").json
    assert [(job["planes"], job["slow_down"]) for job in row["jobs"]] == [("0", 1), ("1", 1)]
    told = emu("jobs", "apart.toml", *where, "--share", "priority", "--routes", "least-loaded").out
    assert "share priority, routes least-loaded, timed by" in told
    assert told.splitlines()[2].split()[:6] == ["job", "work", "ranks", "NPUs", "priority", "begins"]


def test_of_many_jobs_only_those_that_meet_are_in_the_matrix():
    """Six pairs of NPUs of one server send to one another; two jobs beside them share the link between their switches."""
    loop = {"operation": "all_reduce", "algorithm": "ring", "size": 4000, "ranks": 2}
    inside = [{**loop, "npus": [4 * i, 4 * i + 1]} for i in range(12)]
    between = [{**loop, "name": name, "npus": npus} for name, npus in (("one", [50, 54]), ("two", [51, 55]))]
    where = "ring:n=64,bandwidth=1GB/s,latency=0ns"
    said = library.jobs({"job": inside + between}, topology=where, steps=1).text()
    head, one, two, after = said[said.index("slowed by") :].splitlines()[:4]
    assert (head.split()[2:], one.split()[0], two.split()[0], after) == (["one", "two"], "one", "two", "")
    quiet = library.jobs({"job": inside + between[:1]}, topology=where, steps=1).text()
    assert "no job slows another one down" in quiet


def test_of_many_links_the_longest_together_are_told():
    loop = {"operation": "all_reduce", "algorithm": "ring", "size": 4000, "ranks": 4}
    jobs = [{**loop, "name": f"j{i}", "npus": [i + 5 * k for k in range(4)]} for i in range(5)]
    answer = library.jobs({"job": jobs}, topology="ring:n=20,bandwidth=1GB/s,latency=0ns", steps=1)
    assert [len(job.links) for job in answer.jobs] == [4] * 5
    assert "j0 with 1 more" in answer.text()
    assert answer.text().count("  j0 with j") == 3


def test_where_no_job_sends_no_link_is_the_busiest():
    alone = {"model": "llama-tiny", "plan": "dp=1", "global_batch": 1, "seq": 16}
    answer = library.jobs({"job": [alone, alone]}, topology=LINE[1], steps=1)
    assert (answer.busiest_link, answer.busiest, answer.slow_down) == ("none", 0, 1)
