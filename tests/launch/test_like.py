"""`emu estimate --like` times other plans with the kernels of a profile, and says what share of the time rests on them."""

import numpy as np
import pytest

import emu
from emu.errors import InputError
from emu.trace.trace import Kind
from tests.trace.formats.profiles import kernel, write

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=1us"
SLOW = "h100:gemm_share=0.35"
WORK = {
    "Emu kernel": "product",
    "batch": 1,
    "m": 2,
    "n": 3,
    "k": 4,
    "FLOPs": 48.0,
    "Bytes moved": 100,
    "Elements": 50,
    "dtype": "bfloat16",
}
JOB = {"model": "llama-tiny", "topology": SWITCH, "global_batch": 8, "seq": 64}


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """A step on a slower device, and the folder of its profile."""
    folder = tmp_path_factory.mktemp("like") / "prof"
    folder.mkdir()
    step = emu.estimate(**JOB, plan="dp=8", device=SLOW)
    step.save_trace(folder / "step.json.gz")
    return step, folder


def test_the_plan_of_the_profile_rests_on_its_kernels_alone(profile):
    """Each kernel has the measured time: the slower device is met without being named."""
    step, folder = profile
    again = emu.estimate(**JOB, plan="dp=8", device="h100", like=folder)
    assert again.compute_basis.measured == pytest.approx(1)
    assert again.compute_s == pytest.approx(step.compute_s, rel=0.01)
    assert again.compute_s > 1.02 * emu.estimate(**JOB, plan="dp=8").compute_s
    assert "rests on" in again.text()
    assert "measured kernels for 100.0% of the time" in again.text()


def test_another_plan_rests_on_the_model_where_shapes_differ(profile):
    """The shares are those of the seconds of kernels, counted by hand over the trace."""
    _, folder = profile
    found = emu.estimate(**JOB, plan="tp=2,dp=4", like=folder, device="h100")
    basis, timed = found.compute_basis, found.timed[0]
    assert basis.measured + basis.near + basis.model == pytest.approx(1)
    assert 0 < basis.measured < 1
    known = {(k.kernel, k.dtype, k.batch, k.m, k.n, k.k) for k in timed.device.measured if k.m}
    moved = {(k.name, k.dtype, k.bytes) for k in timed.device.measured if not k.m}
    met = total = 0.0
    for role, events in enumerate(timed.trace.events):
        ranks, took = int((timed.trace.role_of_rank == role).sum()), timed.device.seconds(events, timed.dtype)
        for row in np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == found.step)).tolist():
            shape = tuple(int(getattr(events, name)[row]) for name in ("batch", "m", "n", "k"))
            sized = (int(events.kernel[row]), events.dtype[row], *shape) in known
            own = sized if events.kernel[row] else (events.name[row], events.dtype[row], int(events.bytes[row])) in moved
            met, total = met + ranks * took[row] * own, total + ranks * took[row]
    assert basis.measured == pytest.approx(met / total)


def test_a_profile_that_emu_wrote_is_its_device_again(tmp_path):
    """Without gaps between kernels their times hold their launch: other plans take what they take on that device."""
    slow, job = "h100:launch_overhead=20us", {**JOB, "plan": "tp=2,dp=4"}
    emu.estimate(**JOB, plan="dp=8", device=slow).save_trace(tmp_path / "step.json.gz")
    own, like = emu.estimate(**job, device=slow), emu.estimate(**job, like=tmp_path, device=slow)
    assert like.compute_basis.measured < 1
    assert like.compute_s == pytest.approx(own.compute_s, rel=0.001)
    assert like.timed[0].device.launch_overhead_s == 20e-6
    assert any("whose times hold their launch, as there are no gaps between them" in told for told in like.assumptions)
    assert "as on h100, which the kernels' times hold" in emu.calibrate(profile=tmp_path).text()


def test_a_device_of_a_table_has_shares_too_and_others_have_none(profile, tmp_path):
    """`emu calibrate --from` makes the same device, so that both ways give one step."""
    _, folder = profile
    emu.calibrate("h100", profile=folder).save_toml(tmp_path / "prof.toml")
    ways = (
        emu.estimate(**JOB, plan="tp=2,dp=4", like=folder, device="h100"),
        emu.estimate(**JOB, plan="tp=2,dp=4", device=str(tmp_path / "prof.toml")),
    )
    assert ways[0].step_time_s == pytest.approx(ways[1].step_time_s, rel=1e-6)
    assert ways[0].compute_basis.measured == pytest.approx(ways[1].compute_basis.measured)
    plain = emu.estimate(**JOB, plan="dp=8")
    assert plain.compute_basis is None
    assert "rests on" not in plain.text()


def test_the_base_is_the_device_that_the_profile_names(profile, request):
    """The command takes the model of that device for what the profile did not see; a sweep would need a name for it."""
    words = ["estimate", "--model", "llama-tiny", "--plan", "dp=8", "--topology", SWITCH, "--global-batch", "8", "--seq", "64"]
    run = request.getfixturevalue("emu")  # the command; `emu` is the library here
    done = run(*words, "--like", str(profile[1]), "--json")
    assert done.json["compute_basis"]["measured"] == pytest.approx(1)
    done = run(*words, "--like", str(profile[1]), "--sweep", "seq=64,128")
    assert done.code == 2
    assert "--like must be left out where there is a --sweep" in done.err


def test_a_device_of_no_known_name_must_be_named(tmp_path):
    """A profile of another product has its kernels taken, but no model for others."""
    profile = {"deviceProperties": [{"name": "NVIDIA GH200 480GB"}], "traceEvents": [*kernel("k", 1, 2, 3, 4, **WORK)]}
    write(tmp_path, "rank0.json", profile)
    with pytest.raises(
        InputError, match="estimate: device must be given, as no known device is of this name, got 'NVIDIA GH200"
    ):
        emu.estimate(**JOB, plan="dp=8", like=tmp_path)
    assert emu.estimate(**JOB, plan="dp=8", like=tmp_path, device="h200").compute_basis.near > 0


def test_a_profile_without_work_is_refused(tmp_path):
    """Kernels without shapes tell no other plan anything."""
    (tmp_path / "rank0.json").write_text('{"traceEvents": [{"ph": "M"}]}')
    with pytest.raises(InputError, match="tells the work of no kernel"):
        emu.estimate(**JOB, plan="dp=8", like=tmp_path)


def test_the_device_has_the_name_of_its_base_and_of_the_profile(profile, tmp_path):
    """A folder alone is no device. The file of `emu calibrate` has the same name, and a profile of such a step the base."""
    found = emu.estimate(**JOB, plan="dp=8", like=profile[1], device="h100")
    assert found.device == "h100 as in prof"
    assert "on 8 h100 as in prof" in found.text()
    calibrated = emu.calibrate("h100", profile=profile[1])
    assert calibrated.text().startswith("h100 as in prof: ")
    calibrated.save_toml(tmp_path / "mine.toml")
    again = emu.estimate(**JOB, plan="dp=8", device=tmp_path / "mine.toml")
    assert again.device == "h100 as in prof"
    again.save_trace(tmp_path / "step.json.gz")
    assert emu.calibrate(profile=tmp_path / "step.rank0.json.gz").base.name == "h100"


@pytest.mark.parametrize("ask", [lambda: emu.estimate(**JOB, plan="dp=8", like=""), lambda: emu.calibrate(profile="")])
def test_an_empty_word_is_no_folder(ask):
    """The word would be the current folder as a path."""
    with pytest.raises(InputError, match="must be a file or a folder, got ''; name one; a dot is the current folder"):
        ask()


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "--model", "llama-tiny", "--plan", "dp=8", "--global-batch", "8", "--seq", "64", "--like", ""),
        ("calibrate", "--from", ""),
        ("replay", ""),
        ("compare", "", "."),
        ("run", "--ranks", "2", ""),
    ],
)
def test_commands_refuse_an_empty_word(request, words):
    """One line names the option or the argument."""
    run = request.getfixturevalue("emu")  # the command; `emu` is the library here
    done = run(*words, *(() if words[0] in ("calibrate", "compare") else ("--topology", SWITCH)))
    assert done.code == 2
    assert "must be a file or a folder, got ''" in done.err


@pytest.mark.parametrize(("name", "what"), [("et/step.et", "an execution trace of Chakra"), ("step.goal", "a GOAL schedule")])
def test_traces_that_tell_no_kernels_are_named(profile, tmp_path, name, what):
    """The line says what the option needs, and what is there."""
    step = emu.estimate(**JOB, plan="dp=8", algorithm="all_reduce=ring")
    (tmp_path / "et").mkdir()
    step.save_trace(tmp_path / name)
    named = tmp_path / "et" if name.startswith("et") else tmp_path / name
    told = f"like must be a profile of PyTorch, taken with record_shapes=True, got .{what} in .*{named.name}"
    with pytest.raises(InputError, match=told):
        emu.estimate(**JOB, plan="dp=8", like=named)
