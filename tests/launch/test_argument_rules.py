"""Options without effect and numbers that are too large are refused in one line, on the command line and in Python."""

import json

import pytest

import emu as library
from emu.errors import InputError
from launch.cli.options.question_options import QuestionOptions
from launch.front import argument_rules

STEP = ("--model", "llama-tiny", "--topology", "ub-mesh:board")
JOB = (*STEP, "--plan", "dp=4,microbatch=1")
NVL = ("--topology", "nvl:72")
RING = ("bench", "all_reduce", "--topology", "ub-mesh:board", "--size", "1MiB")
QUEUE = ("queue", *NVL, "--mix", "acme")
HUGE = str(10**12)


def line_of(emu, *args: str) -> str:
    done = emu(*args)
    assert (done.code, done.out) == (2, "")
    [line] = [each for each in done.err.splitlines() if "loading what" not in each]
    return str(line)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("faults", *NVL, "--servers", "9"), "faults: --servers needs --log; add --log, or leave --servers out"),
        (("faults", *NVL, "--draws", "9"), "faults: --draws needs --rate"),
        (("faults", *NVL, "--days", "9d"), "faults: --days needs --mtbf or --afr; add --mtbf, or leave --days out"),
        (("faults", *NVL, "--restart", "9s"), "faults: --restart needs --checkpoint"),
        (
            ("faults", *NVL, "--rate", "1%", "--npus-per-server", "4"),
            "faults: --npus-per-server must be left out where --rate is given, got '4'; it has no effect there",
        ),
        ((*QUEUE, "--servers", "9"), "queue: --servers needs --log"),
        ((*QUEUE, "--device", "h800"), "queue: --device needs --arrivals"),
        ((*QUEUE, "--faultless", "--npus-per-node", "2"), "queue: --npus-per-node must be left out where --faultless is given"),
        (("cost", *NVL, "--kwh", "0.2"), "cost: --kwh needs --years"),
        (("cost", *NVL, "--npu", "dollars=1"), "cost: --npu needs --model"),
        (("cost", *NVL, "--device", "h800"), "cost: --device needs --model"),
        (("cost", *NVL, "--stack", "software=megatron"), "cost: --stack needs --model"),
        (
            ("design", *STEP, "--npus", "8", "--global-batch", "8", "--seq", "8", "--kwh", "0.2"),
            "design: --kwh needs --years",
        ),
        (("train", *JOB, "--checkpoint-every", "2"), "train: --checkpoint-every needs --checkpoint"),
        (("train", *JOB, "--elastic"), "train: --elastic needs --checkpoint"),
        (("train", *JOB, "--every-rank"), "train: --every-rank needs --timeline; add --timeline, or leave --every-rank out"),
        ((*RING, "--factor", "4"), "bench: --factor needs --begin or --end"),
        (
            (*RING, "--cluster", "ray", "--timing-only"),
            "bench: --cluster must be left out where --timing-only is given, got 'ray'",
        ),
        (
            ("run", "--ranks", "2", "--topology", "ub-mesh:board", "--cluster", "fake", "--patience", "9", "x.py"),
            "run: --patience must be left out where --cluster fake is given",
        ),
    ],
)
def test_an_option_without_effect_is_refused(emu, args: tuple[str, ...], said: str) -> None:
    assert said in line_of(emu, *args)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("estimate", *JOB, "--seq", "8", "--global-batch", HUGE), "estimate: --global-batch must be at most 16,777,216, got"),
        (
            ("estimate", *JOB, "--seq", "8", "--global-batch", str(2**20)),
            "plan: microbatches must be at most 8,192 of a rank in a step, got 262144; take a global batch of at most 32,768",
        ),
        (("train", *JOB, "--steps", HUGE), "train: --steps must be at most 10,000,000, got"),
        (("plan", *STEP, "--npus", "8", "--seq", "8", "--global-batch", HUGE), "plan: --global-batch must be at most"),
        (("plan", *STEP, "--npus", HUGE, "--seq", "8", "--global-batch", "8"), "plan: --npus must be at most 16,777,216, got"),
        (("verify", "all_reduce", "--ranks", "4", "--ranks", HUGE), "verify: --ranks must be at most 16,777,216, got"),
        ((*RING, "--perturb", HUGE), "bench: --perturb must be at most 10,000, got"),
        (
            (*RING[:4], "-b", "1", "-e", "1GiB", "-f", "1.0000001"),
            "bench: --factor must be such that there are at most 10,000 sizes, got 1.0000001; take a larger one",
        ),
        (("faults", *NVL, "--rate", "1%", "--draws", HUGE), "faults: --draws must be at most 372,827 for 720 nodes, got"),
        (("faults", *NVL, "--mtbf", "1y", "--mttr", "1h", "--days", f"{HUGE}d"), "faults that are drawn must be at most some"),
        (("faults", *NVL, "--mtbf", "0.0000001h", "--mttr", "0.0000001h"), "faults that are drawn must be at most some"),
    ],
)
def test_a_number_that_is_too_large_is_refused_at_once(emu, args: tuple[str, ...], said: str) -> None:
    assert said in line_of(emu, *args)


def test_python_names_arguments() -> None:
    with pytest.raises(library.InputError, match="faults: servers needs log; add log, or leave servers out") as caught:
        library.faults(topology="nvl:72", servers=9)
    assert caught.value.field == "servers"
    with pytest.raises(library.InputError, match=r"faults: job must be at most 16,777,216, got 1000000000000"):
        library.faults(topology="nvl:72", job=10**12)


def test_a_default_that_is_given_is_no_argument_without_effect(emu) -> None:
    assert emu("cost", *NVL, "--kwh", "0.1", "--device", "h100").code == 0


QUESTIONS = [getattr(library, name) for name in library.__all__ if hasattr(getattr(library, name), "emu_needs")]


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_rules_name_arguments(ask) -> None:
    taken = QuestionOptions(ask)._taken
    for declared in (ask.emu_needs, getattr(ask, "emu_excludes", {})):
        named = [*declared, *(other.partition("=")[0] for others in declared.values() for other in others.split("|"))]
        assert set(named) <= set(taken)
    assert set(argument_rules.MOST) & set(taken)


TWO_RANKS = {"model": "llama-tiny", "global_batch": 2, "seq": 16, "topology": "ub-mesh:board"}


@pytest.mark.parametrize(
    ("ask", "given", "said"),
    [
        (
            library.train,
            {**TWO_RANKS, "plan": "dp=2", "checkpoint": "a", "trace": "b.trace"},
            "train: trace must be left out where",
        ),
        (
            library.replay,
            {"trace": "a", "topology": "nvl:72", "fault": "npu 1 at step 1", "perturb": 3},
            "perturb must be left out",
        ),
        (library.plan, {**TWO_RANKS, "npus": 2, "top": 0}, "plan: top must be 1 or more, got 0"),
        (library.plan, {**TWO_RANKS, "npus": 0}, "plan: npus must be 1 or more, got 0"),
        (library.show_topology, {"name": "nvl:72", "route": ["0"]}, "show topology: route must be two nodes, got '0'"),
    ],
)
def test_an_argument_without_effect_or_sense_is_named_as_python_has_it(ask, given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        ask(**given)


def test_host_time_of_a_trace_of_ours_is_named_as_python_has_it(tmp_path):
    step = library.estimate(**TWO_RANKS, plan="dp=2")
    step.save(tmp_path / "step.trace")
    with pytest.raises(InputError, match="host_time needs a profile or execution traces of another program"):
        library.load_trace(tmp_path / "step.trace", host_time=True)


def test_rows_on_stdout_are_not_mixed_with_what_a_script_prints(emu, tmp_path):
    script = tmp_path / "talks.py"
    lines = (
        "import torch, torch.distributed as dist",
        "dist.init_process_group()",
        "dist.all_reduce(torch.ones(9))",
        "print('hi')",
    )
    script.write_text("\n".join(lines))
    done = emu("run", "--ranks", "2", "--topology", "ub-mesh:board", "--out", "-", str(script))
    assert done.code == 0, done.err
    assert done.err.count("hi\n") == 2
    [line] = done.out.splitlines()
    assert json.loads(line)["ranks"] == 2


def test_the_answer_of_a_script_without_a_step_has_a_page_and_no_rows(tmp_path):
    script = tmp_path / "idle.py"
    script.write_text("pass\n")
    found = library.run(script, ranks=2, topology="ub-mesh:board")
    found.save(tmp_path / "t.html")
    assert "so there is nothing to time" in (tmp_path / "t.html").read_text()
    assert len(found.to_pandas()) == 0
    with pytest.raises(InputError, match="nothing to time"):
        found.save_timeline(tmp_path / "t.json")
