"""The command `emu synthesize`: its rows, what it refuses, what it writes, and `emu bench --algorithm synthesized`."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import emu as library
from emu.collective import algorithm
from emu.collective.msccl.xml_format import from_xml
from emu.collective.proof import prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.study import synthesize as synthesis
from emu.study.choice.site import Requirement, Site
from emu.study.choice.synthesis_choice import made_algorithm
from emu.study.synthesize import SynthesisRequest, TimeUpError
from emu.topology.catalogue import build_topology
from launch.clusters import ClusterOptions

LINK = "bandwidth=50GB/s,latency=500ns"
TORUS = f"torus:dims=4x4,{LINK}"
UNEVEN = "a,b,bandwidth,latency\n0,1,100GB/s,500ns\n1,2,50GB/s,500ns\n2,0,50GB/s,500ns\n2,3,25GB/s,500ns\n"


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_before: None) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_row_tells_the_time_beside_bounds_and_the_best_of_the_catalogue(emu):
    (row,) = emu("synthesize", "all_gather", "--topology", TORUS, "--size", "16MiB", "--json").json
    assert (row["ranks"], row["size_bytes"], row["tree_bound"], row["cut_short"]) == (16, 2**24, "cuts", False)
    assert row["tree_bound_s"] == pytest.approx(15 * 2**20 / 200e9 + 500e-9)
    assert 0.98 < row["of_tree_bound"] <= 1
    assert row["time_s"] == pytest.approx(row["tree_bound_s"] / row["of_tree_bound"])
    assert row["time_s"] < row["best_time_s"]
    text = emu("synthesize", "all_gather", "--topology", TORUS, "--size", "16MiB").out
    assert "of_tree_bound" in text
    assert "Every schedule is proved." in text


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"])
def test_the_function_returns_the_proved_schedule(operation):
    answer = library.synthesize(operation, topology=f"switch:n=5,{LINK}", size="1MiB", root=0)
    assert prove(answer.schedules[0], answer.operations[0]).uniform
    assert answer.of_tree_bound > 0.85


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("all_to_one",),
            "synthesize: operation must be one of all_gather, reduce_scatter, all_reduce, broadcast, reduce, all_to_all, got",
        ),
        (
            ("all_gather", "--size", "15B"),
            "synthesize: --size must be a multiple of 4 bytes above 0, the size of a float32, got 15",
        ),
        (("all_gather", "--time", "0s"), "synthesize: --time must be above 0, got '0 s'"),
        (("all_gather", "--ranks", "17"), "placement: 17 ranks do not fit"),
        (("broadcast", "--root", "16"), "broadcast: root must be a rank of 0..15, got 16"),
        (
            ("broadcast", "--xml", "a.xml"),
            "synthesize: --xml must be given for all_gather, reduce_scatter, all_reduce or all_to_all, got",
        ),
        (
            ("all_gather", "--topology", TORUS, "--png", "a.png"),
            "synthesize: --topology must be given once where a schedule is",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(emu, words, said):
    done = emu("synthesize", *words, "--topology", TORUS)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith(f"emu: {said}")


def test_ranks_that_no_path_joins_and_switches_that_turn_are_refused(emu):
    Path("parted.csv").write_text("a,b,bandwidth,latency\n0,1,1GB/s,1us\n2,3,1GB/s,1us\n")
    done = emu("synthesize", "all_gather", "--topology", "parted.csv")
    assert done.code == 2
    assert "no way leads from NPU 2 to NPU 0" in done.err
    done = emu("synthesize", "all_gather", "--topology", "infinitehbd:binary:nodes=16")
    assert (done.code, "turn between messages; name an algorithm" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("rate", "size", "said"),
    [
        ("0.5B/s", "16B", "synthesize: slow.csv: the bandwidth of a link must be 1 kB/s or more, got '0.5 B/s'"),
        ("1500B/s", "1TiB", "synthesize: no schedule can be timed on slow.csv; all_gather synthesised: the message from"),
    ],
)
def test_links_that_are_too_slow_are_refused_at_once(emu, rate, size, said):
    Path("slow.csv").write_text(f"a,b,bandwidth,latency\n0,1,{rate},1us\n1,2,2kB/s,1us\n")
    done = emu("synthesize", "all_gather", "--topology", "slow.csv", "--size", size)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith(f"emu: {said}")


def test_a_time_that_leaves_nothing_is_refused_and_one_that_leaves_something_is_told(emu, monkeypatch):
    words = ("synthesize", "all_gather", "--topology", "hammingmesh:boards=1x1", "--size", "1MiB")
    done = emu(*words, "--time", "1us")
    assert (done.code, "--time must be enough for a first schedule, got '1 us'; give more time" in done.err) == (2, True)
    tried = synthesis._Search._try

    def once(self, schedule, variant):
        if self.tried:
            raise TimeUpError
        return tried(self, schedule, variant)

    monkeypatch.setattr(synthesis._Search, "_try", once)
    done = emu(*words, "--time", "1000s")
    assert "cut short on hammingmesh:boards=1x1: best so far, of 1 schedules" in done.out


def test_a_bound_that_takes_long_leaves_time_for_a_schedule(emu, monkeypatch):
    """The bound is worked out after the first schedule, which is told even if no time is left then."""
    seen, least, tried = [], synthesis._Search._least, synthesis._Search._try

    def bound(self):
        seen.append("bound")
        self.limit_s = 1e-9
        return least(self)

    monkeypatch.setattr(synthesis._Search, "_least", bound)
    monkeypatch.setattr(synthesis._Search, "_try", lambda *given: seen.append("schedule") or tried(*given))
    for operation in ("all_to_all", "all_gather"):
        seen.clear()
        done = emu("synthesize", operation, "--topology", "hammingmesh:boards=1x1", "--size", "1MiB", "--time", "1000s")
        assert seen[:2] == ["schedule", "bound"]
        assert "best so far, of 1 schedules" in done.out


def test_where_blocks_are_empty_no_share_of_a_bound_is_told(emu):
    done = emu("synthesize", "all_to_all", "--topology", f"ring:n=5,{LINK}", "--size", "12B")
    row = done.out.splitlines()[2]
    assert row.split()[6:10] == ["us", "0.010", "-", "-"]


def test_the_program_that_is_written_is_read_and_runs_as_long(emu):
    Path("uneven.csv").write_text(UNEVEN)
    (made,) = emu("synthesize", "all_gather", "--topology", "uneven.csv", "--size", "1MiB", "--xml", "own.xml", "--json").json
    words = ("--algorithm", "synthesized-all_gather-4", "--topology", "uneven.csv", "--size", "1MiB")
    (row,) = emu("bench", "all_gather", "--import", "own.xml", *words, "--json").json
    assert row["wrong"] == 0
    assert row["time_s"] == pytest.approx(made["time_s"], rel=0.02)


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_to_all"])
def test_the_columns_that_are_written_are_a_proved_schedule(emu, operation):
    words = ("synthesize", operation, "--topology", TORUS, "--size", "1MiB", "--npz", "own.npz", "--json")
    (made,) = emu(*words).json
    with np.load("own.npz") as file:
        held = {name: file[name] for name in file.files}
    assert str(held["operation"]) == operation
    starts = [0, *held["round_end"][:-1]]
    columns = [held[name] for name in ("src", "dst", "slot", "reduce", "channel", "dst_slot")]
    rounds = [Sends(*(c[slice(*ends)] for c in columns)) for ends in zip(starts, held["round_end"], strict=True)]
    schedule = Schedule.build(int(held["n_ranks"]), int(held["n_slots"]), rounds)
    prove(schedule, synthesis.operation(operation, 16))
    assert (schedule.n_rows, schedule.n_rounds) == (made["rows"], made["rounds"])


def test_a_bench_makes_the_schedule_moves_data_by_it_and_knows_it_again(emu, monkeypatch):
    Path("uneven.csv").write_text(UNEVEN)
    words = ("bench", "all_reduce", "--algorithm", "synthesized", "--topology", "uneven.csv", "--size", "1MiB", "--json")
    (row,) = emu(*words).json
    assert (row["wrong"], row["algorithm"]) == (0, "synthesized")
    assert row["chosen"]
    (made,) = emu("synthesize", "all_reduce", "--topology", "uneven.csv", "--size", "1MiB", "--json").json
    assert row["time_s"] == made["time_s"]
    assert emu(*words).json[0]["time_s"] == made["time_s"]
    done = emu("bench", "gather", *words[2:])
    assert (done.code, "a synthesised operation must be one of" in done.err) == (2, True)


@pytest.mark.parametrize(("size", "served"), [("1MiB", "synthesized"), ("16B", "recursive-doubling")])
def test_a_bench_takes_the_faster_one_of_a_made_schedule_and_the_catalogue(emu, size, served):
    Path("uneven.csv").write_text(UNEVEN)
    words = ("bench", "all_reduce", "--topology", "uneven.csv", "--size", size, "--json", "--algorithm")
    made, best, faster, again = (emu(*words, word).json[0] for word in ("synthesized", "auto", BOTH, BOTH))
    assert (faster["algorithm"], faster["wrong"]) == (served, 0)
    assert faster["time_s"] == again["time_s"] == min(made["time_s"], best["time_s"])
    assert made["time_s"] != best["time_s"]


def test_a_kept_variant_is_made_again_without_a_search(monkeypatch):
    site = Site.first(build_topology("hammingmesh:boards=1x1"))
    kept: dict[str, object] = {}
    monkeypatch.setattr(synthesis, "keep_entry", lambda _, key, value: kept.update({key: value}))
    monkeypatch.setattr(synthesis, "recall_entry", lambda _, key: kept.get(key))
    op = synthesis.operation("all_gather", 16)
    synthesis.kept_schedule.cache_clear()
    first = synthesis.kept_schedule(site, op, 2**18, 4)
    synthesis.kept_schedule.cache_clear()
    monkeypatch.setattr(synthesis._Search, "find", lambda _: pytest.fail("it searched again"))
    again = synthesis.kept_schedule(site, op, 2**18, 4)
    assert (again[0].digest(), again[1]) == (first[0].digest(), first[1])
    assert len(kept) == 1


def test_equal_requests_give_equal_schedules():
    topology = build_topology("hammingmesh:boards=1x1")
    request = SynthesisRequest("reduce_scatter", 2**20)
    first, again = (synthesis.synthesize(topology, request) for _ in range(2))
    assert (first.schedule.digest(), first.time_s) == (again.schedule.digest(), again.time_s)


STEP = ("--model", "llama-tiny", "--global-batch", "4", "--seq", "32", "--topology", "hammingmesh:boards=1x1,side=2")
BOTH = "auto+synthesized"
WORDS = ("estimate", *STEP, "--plan", "dp=4,microbatch=1", "--json", "--algorithm")


@pytest.mark.parametrize("word", ["synthesized", "all_reduce=synthesized", "dp.all_reduce=synthesized"])
def test_an_estimate_is_served_by_schedules_that_are_made_for_it(emu, word):
    made, best = (emu(*WORDS, each).json for each in (word, "auto"))
    served = json.dumps(made["algorithms"])
    assert "synthesized-" in served
    assert "synthesized-" not in json.dumps(best["algorithms"])  # `auto` never takes one, also where one is known
    assert made["total_comm_s"] < best["total_comm_s"] * 1.02


RAILS = ("--topology", "hpn:rail-only:dims=2x2x2,aggs=2")
MANY = ("--model", "llama-tiny", "--global-batch", "4", "--seq", "32", *RAILS, "--plan", "dp=4,microbatch=1", "--json")


def test_an_estimate_is_served_by_the_faster_ones(emu):
    words = ("estimate", *MANY, "--algorithm")
    made, best, faster = (emu(*words, each).json for each in ("synthesized", "auto", BOTH))
    assert faster["step_time_s"] <= min(made["step_time_s"], best["step_time_s"])
    assert faster["step_time_s"] < best["step_time_s"]
    assert "synthesized-" in json.dumps(faster["algorithms"])
    assert emu(*words, "auto").json["algorithms"] == best["algorithms"]  # though made schedules are kept now


def test_a_search_for_plans_is_served_by_the_faster_ones(emu):
    words = (
        "plan",
        "--npus",
        "4",
        *MANY[:6],
        *RAILS,
        "--plan",
        "dp=4,microbatch=1,sharding=ddp,recompute=none",
        "--top",
        "1",
        "--json",
    )
    best, faster = (emu(*words, "--algorithm", each).json for each in ("auto", BOTH))
    assert faster["rows"][0]["step_time_s"] < best["rows"][0]["step_time_s"]
    assert "synthesized-" in json.dumps(faster["rows"][0]["algorithms"])


def test_a_run_and_its_replay_are_served_by_the_faster_ones(emu):
    made = emu("train", *MANY, "--steps", "2", "--algorithm", BOTH, "--trace", "own.trace").json
    assert "synthesized-" in json.dumps(made["algorithms"])
    (again,) = emu("replay", "own.trace", *RAILS, "--json", "--algorithm", BOTH).json
    assert (again["algorithms"], again["step_time_s"]) == (made["algorithms"], made["step_time_s"])


def test_words_that_are_misspelt_or_have_dims_are_told_in_one_line(emu):
    none = "algorithm: what serves all_reduce must be an algorithm, got"
    near = "no all_reduce algorithm is called 'synthesised'; did you mean synthesized or auto+synthesized?"
    for word, said in (
        ("synthesised", near),
        ("atuo", "no all_reduce algorithm is called 'atuo'; did you mean auto?"),
        (
            "synthesized:2x2",
            f"{none} 'synthesized:2x2'; auto, synthesized, auto+synthesized are no algorithms; a choice takes them alone",
        ),
        ("auto+synthesized:2x2", f"{none} 'auto+synthesized:2x2'; auto, synthesized, auto+synthesized are no algorithms"),
        ("synthesized@4", f"{none} 'synthesized'; auto, synthesized, auto+synthesized are no algorithms"),
    ):
        done = emu("bench", "all_reduce", "--topology", "ub-mesh:board", "--size", "1MiB", "--algorithm", word)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[-1].startswith(f"emu: {said}")
    done = emu(*WORDS, "dp.all_reduce=synthesised")
    assert (done.code, done.err.splitlines()[-1]) == (2, f"emu: {near}")


def test_what_no_schedule_is_made_for_is_told_in_one_line(emu):
    for words, said in (
        ((*WORDS, "gather=synthesized"), "--algorithm: a synthesised operation must be one of all_gather"),
        ((*WORDS, "dp.all_to_all=synthesized"), "no collective on dp is called 'all_to_all'; known: all_reduce"),
        (("verify", "all_reduce", "--algorithm", "synthesized"), "verify: --algorithm must be an algorithm of the catalogue"),
        (("verify", "all_reduce", "--algorithm", BOTH), "verify: --algorithm must be an algorithm of the catalogue"),
    ):
        done = emu(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[-1].startswith(f"emu: {said}")


@pytest.mark.parametrize(
    "words",
    [
        ("train", *STEP, "--plan", "dp=4", "--algorithm", "synthesized"),
        ("train", *STEP, "--plan", "dp=4", "--algorithm", "dp.all_reduce=synthesized"),
        ("run", "--ranks", "4", "--topology", "ub-mesh:board", "--algorithm", "all_reduce=synthesized", "own.py"),
        ("bench", "all_reduce", "--topology", "ub-mesh:board", "--algorithm", "synthesized"),
        ("bench", "all_reduce", "--topology", "ub-mesh:board", "--algorithm", "auto+synthesized"),
    ],
)
def test_a_ray_is_not_started_for_what_its_processes_do_not_find(emu, monkeypatch, words):
    monkeypatch.setattr(ClusterOptions, "open_cluster", lambda *_, **__: pytest.fail("a cluster was opened"))
    Path("own.py").write_text("import torch.distributed as dist\n")
    done = emu(words[0], "--cluster", "ray", *words[1:])
    assert (done.code, done.out) == (2, "")
    word = words[-1 if words[0] != "run" else -2].rpartition("=")[2]
    said = f"emu: ray: --algorithm must be one that every process finds, got {word!r}; take --cluster local"
    assert done.err.splitlines()[-1].startswith(said)


def test_a_run_moves_its_data_by_made_schedules_and_its_trace_is_replayed_by_them(emu):
    words = ("train", *STEP, "--plan", "dp=4", "--steps", "2", "--json")
    plain = emu(*words).json
    made = emu(*words, "--algorithm", "synthesized", "--trace", "own.trace").json
    assert made["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert "synthesized-" in json.dumps(made["algorithms"])
    on = ("replay", "own.trace", "--topology", "hammingmesh:boards=1x1,side=2", "--json")
    (again,) = emu(*on, "--algorithm", "synthesized").json
    assert again["algorithms"] == made["algorithms"]
    (other,) = emu(*on).json
    assert "synthesized-" not in json.dumps(other["algorithms"])


def test_a_made_schedule_is_not_known_elsewhere():
    with pytest.raises(InputError, match="must be given as synthesized or as an algorithm, got 'synthesized-0'"):
        algorithm.algorithm("all_reduce", "synthesized-0")


@pytest.mark.parametrize("root", [0, 2])
def test_a_made_broadcast_has_the_root_that_was_asked_for(root):
    site = Site.first(build_topology("hammingmesh:boards=1x1,side=2"))
    served = made_algorithm(site, Requirement("broadcast", root, 4096, 4))
    assert served is not None
    plan = algorithm.schedule("broadcast", served.algorithm, 4, root)
    prove(plan, synthesis.operation("broadcast", 4, root))
    assert plan.src[plan.round_column() == 0].tolist() == [root] * (plan.round_end[0])


# The form of MSCCL's programs, read off msccl-tools: `ir_to_xml` of msccl/language/ir.py (commit 0448b18) writes these
# attributes and instructions, and experiments_ar/ring_1_8.xml (f7c0d54) is such a program. `emu_round` is Emu's own, an extra.
FORM = {
    "algo": {"name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"},
    "gpu": {"id", "i_chunks", "o_chunks", "s_chunks"},
    "tb": {"id", "send", "recv", "chan"},
    "step": {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"},
}
SENDS, RECEIVES = {"s", "rcs", "rrs", "rrcs"}, {"r", "rcs", "rrs", "rrc", "rrcs"}


@pytest.mark.parametrize(
    ("operation", "coll"), [("all_gather", "allgather"), ("all_reduce", "allreduce"), ("all_to_all", "alltoall")]
)
def test_programs_have_the_form_of_msccl_tools_and_are_read_again(emu, operation, coll):
    Path("uneven.csv").write_text(UNEVEN)
    emu("synthesize", operation, "--topology", "uneven.csv", "--size", "64KiB", "--xml", "own.xml")
    algo = ElementTree.parse("own.xml").getroot()
    for element in algo.iter():
        assert set(element.attrib) - {"emu_round"} == FORM[element.tag]
    assert (algo.get("coll"), algo.get("ngpus"), [int(gpu.get("id")) for gpu in algo]) == (coll, "4", [0, 1, 2, 3])
    assert int(algo.get("nchannels")) == 1 + max(int(tb.get("chan")) for tb in algo.iter("tb"))
    sent, received = Counter(), Counter()
    for gpu in algo:
        assert [int(tb.get("id")) for tb in gpu] == list(range(len(gpu)))
        for way in ("send", "recv"):  # a connection belongs to one threadblock
            ends = [(tb.get(way), tb.get("chan")) for tb in gpu if tb.get(way) != "-1"]
            assert len(ends) == len(set(ends))
        waited = {(step.get("depid"), step.get("deps")) for step in gpu.iter("step")} - {("-1", "-1")}
        for tb in gpu:
            assert [int(step.get("s")) for step in tb] == list(range(len(tb)))
            for step in tb:
                check_step(gpu, tb, step)
                assert (step.get("hasdep") == "1") == ((tb.get("id"), step.get("s")) in waited)
                sent[gpu.get("id"), tb.get("send"), tb.get("chan")] += step.get("type") in SENDS
                received[tb.get("recv"), gpu.get("id"), tb.get("chan")] += step.get("type") in RECEIVES
    assert +sent == +received
    schedule, read = from_xml(Path("own.xml").read_text())
    assert (read.name, prove(schedule, read).uniform) == (operation, True)


def check_step(gpu: ElementTree.Element, tb: ElementTree.Element, step: ElementTree.Element) -> None:
    """Check that a step is an instruction of MSCCL, that its threadblock has its peers, and that its addresses exist."""
    kind = step.get("type")
    assert kind in SENDS | RECEIVES | {"cpy", "re", "nop"}
    assert kind not in SENDS or tb.get("send") != "-1"
    assert kind not in RECEIVES or tb.get("recv") != "-1"
    ours = [*(["src"] if kind in {"s", "cpy", "re"} else []), *(["dst"] if kind in RECEIVES | {"cpy", "re"} - {"rrs"} else [])]
    for end in ours:
        assert int(step.get(f"{end}off")) + int(step.get("cnt")) <= int(gpu.get(f"{step.get(f'{end}buf')}_chunks"))
    if step.get("depid") != "-1":
        assert int(step.get("deps")) < len(gpu[int(step.get("depid"))])
