"""`emu replay --ranks` times a recorded step on more ranks: it takes what an estimate of that plan takes."""

import pytest

import emu
from emu.errors import InputError
from emu.trace.growth import grown

JOB = {"model": "llama-tiny", "seq": 64, "algorithm": ("all_reduce=ring", "all_gather=ring")}
SMALL, LARGE = (f"switch:n={n},bandwidth=50GB/s,latency=1us" for n in (8, 16))


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """A step on 8 ranks in every format, and the estimate of the plan with twice the data parallelism."""
    folder = tmp_path_factory.mktemp("grown")
    small = emu.estimate(**JOB, plan="tp=2,pp=2,dp=2,microbatch=1", topology=SMALL, global_batch=4)
    for name in ("step.trace", "prof/step.json.gz", "et/step.et"):
        (folder / name).parent.mkdir(exist_ok=True)
        small.save_trace(folder / name)
    large = emu.estimate(**JOB, plan="tp=2,pp=2,dp=4,microbatch=1", topology=LARGE, global_batch=8)
    return folder, small, large


@pytest.mark.parametrize("name", ["step.trace", "prof", "et"])
def test_a_grown_step_takes_what_the_larger_plan_takes(steps, name):
    """Give the same time and parts, whatever format the trace of half the ranks was in, if the device's model times both."""
    folder, _, large = steps
    found = emu.replay(folder / name, topology=LARGE, algorithm=JOB["algorithm"], ranks=16, device="h100")
    assert found.ranks == 16
    assert found.step_time_s == pytest.approx(large.step_time_s, rel=0, abs=1e-12)
    assert found.compute_s == pytest.approx(large.compute_s, rel=0, abs=1e-12)
    assert any("data parallelism grew from the 8 ranks of the trace" in told for told in found.assumptions)


def test_the_work_of_a_step_grows_with_it(steps):
    """Tokens a second and MFU are those of the larger plan."""
    _, small, large = steps
    found = emu.replay(small.timed[0].trace, topology=LARGE, algorithm=JOB["algorithm"], ranks=16)
    assert found.tokens_per_s == pytest.approx(large.tokens_per_s)
    assert found.mfu == pytest.approx(large.mfu)


def test_measured_times_are_of_the_ranks_that_were_profiled(steps):
    """No step of the larger job was measured: its replay is compared with none, and has no error."""
    folder = steps[0]
    found = emu.replay(folder / "prof", topology=LARGE, ranks=16)
    assert found.measured_step_s is None
    assert any("the slowest of 16 ranks is slower; --device counts it" in told for told in found.assumptions)
    timed = emu.replay(folder / "prof", topology=LARGE, ranks=16, device="h100")
    assert not any("is slower; --device counts it" in told for told in timed.assumptions)
    assert emu.replay(folder / "prof", topology=SMALL, ranks=8).measured_step_s is not None
    with pytest.raises(
        InputError, match="ran_on compares a step with the measured one, which had fewer ranks; leave ranks out"
    ):
        emu.replay(folder / "prof", topology=LARGE, ran_on=SMALL, ranks=16)


def test_a_number_that_is_no_multiple_is_refused(steps):
    """One line names the argument."""
    with pytest.raises(InputError, match="replay: ranks must be a multiple of the 8 ranks of the trace, got 12"):
        emu.replay(steps[0] / "step.trace", topology=LARGE, ranks=12)


SUM = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(8))
"""
DDP = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters())
for _ in range(2):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def test_a_script_without_steps_says_why_it_does_not_grow(tmp_path, monkeypatch, request):
    """Its only step has the set-up of DDP, too, in which ranks tell one another their parts: nobody knows them from shards."""
    run = request.getfixturevalue("emu")  # the command; `emu` is the library here
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ddp.py").write_text(DDP.replace("    optimizer.step()\n", ""))
    (tmp_path / "sum.py").write_text(SUM)
    for name in ("ddp", "sum"):
        words = ("--ranks", "2", "--topology", "switch:n=2,bandwidth=50GB/s,latency=1us", "--trace", f"{name}.trace")
        assert run("run", *words, f"{name}.py").code == 0
    untold = "no step of an optimizer, so that nothing tells its set-up from its steps"
    with pytest.raises(
        InputError, match=rf"all_gather of 2 .* 4 equal shards; take fewer ranks; the script has {untold}: let it call opt"
    ):
        emu.replay("ddp.trace", topology="switch:n=4,bandwidth=50GB/s,latency=1us", ranks=4)
    found = emu.replay("sum.trace", topology="switch:n=4,bandwidth=50GB/s,latency=1us", ranks=4)
    assert any(untold in told for told in found.assumptions)


def test_a_script_grows_to_what_it_does_on_more_ranks(tmp_path, monkeypatch, request):
    """Set-up, too: there each rank of DDP tells all others its parameters, and its part is as large among more of them."""
    run = request.getfixturevalue("emu")  # the command; `emu` is the library here
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ddp.py").write_text(DDP)
    for n in (2, 4):
        words = ("--ranks", str(n), "--topology", f"switch:n={n},bandwidth=50GB/s,latency=1us", "--trace", f"{n}.trace")
        assert run("run", *words, "ddp.py").code == 0
    found, larger = grown(emu.load_trace("2.trace"), 4), emu.load_trace("4.trace")
    assert emu.compare(found, larger)[0].equal
    asked = [[row for row in range(len(of)) if of.group[row] >= 0] for of in (found.events_of(3), larger.events_of(3))]
    for name in ("step", "name", "bytes", "count", "root"):
        own, other = (
            [getattr(of.events_of(3), name)[row] for row in rows] for of, rows in zip((found, larger), asked, strict=True)
        )
        assert own == other, name
    assert "all_gather" in larger.events_of(3).name
