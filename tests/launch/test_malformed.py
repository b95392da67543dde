"""Malformed command lines: each is refused in one line with exit code 2, which names the field and the value."""

import pytest

from tests.launch.repeated import replaced

SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
STEP = ("--model", "llama-tiny", "--global-batch", "2", "--seq", "32", "--topology", SWITCH)
PLAN = ("--plan", "tp=2,dp=2")
COMMANDS = {
    "bench": ("all_reduce", "--timing-only", "--topology", SWITCH),
    "estimate": (*STEP, *PLAN),
    "outage": (*STEP, *PLAN, "--until", "100s"),
    "plan": (*STEP, "--npus", "4"),
    "faults": ("--topology", "infinitehbd", "--tp", "8"),
    "cost": ("--topology", "infinitehbd"),
}


SPELLS = ("--mtbf", "1y", "--mttr", "4h")
NEEDED = {"faults --domain": SPELLS, "faults --days": SPELLS, "cost --kwh": ("--years", "3")}  # without which it says nothing


@pytest.mark.parametrize(
    ("command", "option", "value", "field"),
    [
        ("bench", "--size", "nan", "--size"),
        ("bench", "--size", "-1MiB", "--size"),
        ("bench", "--size", "1e400", "--size"),
        ("bench", "--size", "", "--size"),
        ("bench", "--size", "\u0663MiB", "--size"),
        ("bench", "--size", "4K", "--size"),
        ("bench", "--ranks", "1e400", "--ranks"),
        ("bench", "--perturb", "nan", "--perturb"),
        ("bench", "--stack", "launch=5", "launch"),
        ("bench", "--stack", "launch=1us,launch=2us", "launch"),
        ("bench", "--stack", "bandwidth=nan", "bandwidth"),
        ("estimate", "--seq", "0", "seq"),
        ("estimate", "--seq", "-1", "seq"),
        ("estimate", "--seq", "nan", "--seq"),
        ("estimate", "--global-batch", "1e400", "--global-batch"),
        ("estimate", "--plan", "tp=0", "tp"),
        ("estimate", "--plan", "tp=-2", "tp"),
        ("estimate", "--plan", "tp=2,tp=2", "tp"),
        ("estimate", "--plan", "dp=2,tp=\u0662", "tp"),
        ("estimate", "--plan", "tp=99999999999999999999", "tp"),
        ("estimate", "--plan", "tp=2,dp=2,clip=nan", "clip"),
        ("estimate", "--device", "", "device"),
        ("estimate", "--axes", "tp,tp", "--axes"),
        ("estimate", "--fault", "npu 0 at step \u0663", "step"),
        ("estimate", "--fault", "npu 0 slow nan at step 3", "slow"),
        ("estimate", "--fault", "npu 0 from step 5 to 3", "end"),
        ("estimate", "--fault", "random link=0.1 steps=999999999", "steps"),
        ("estimate", "--sweep", "seq=1..1e400:3", "seq"),
        ("estimate", "--sweep", "seq=nan", "seq"),
        ("estimate", "--sweep", "nosuch=3,nosuch", "sweep"),
        ("plan", "--npus", "nan", "--npus"),
        ("plan", "--npus", "-4", "--npus"),
        ("plan", "--top", "0", "--top"),
        ("plan", "--plan", "tp=0", "tp"),
        ("plan", "--plan", "dp=0", "dp"),
        ("plan", "--sweep", "npus=\u0664", "npus"),
        ("plan", "--sweep", "npus=1..", "npus"),
        ("outage", "--fault", "link 0-4 at infs", "moment"),
        ("outage", "--fault", "link 0-4 at \u0663s", "moment"),
        ("outage", "--fault", "link 0-4 from 40s to 10s", "end"),
        ("outage", "--fault", "link 0-4 flaps 1s every 5s from 10 to 20", "from"),
        ("outage", "--fault", "random link=1e400 every=5s", "link"),
        ("outage", "--fault", "random link=0.1 link=0.2 every=5s", "link"),
        ("outage", "--detect", "nan", "--detect"),
        ("outage", "--restart", "-5s", "--restart"),
        ("outage", "--until", "99999", "--until"),
        ("faults", "--rate", "nan", "--rate"),
        ("faults", "--rate", "2", "--rate"),
        ("faults", "--rate", "\u0660.\u0661", "--rate"),
        ("faults", "--days", "nan", "--days"),
        ("faults", "--days", "0d", "--days"),
        ("faults", "--mtbf", "inf", "--mtbf"),
        ("faults", "--mttr", "5", "--mttr"),
        ("faults", "--domain", "mtbf=1y,mttr=4h,npus=\u0668", "npus"),
        ("faults", "--checkpoint", "nan", "--checkpoint"),
        ("cost", "--years", "nan", "--years"),
        ("cost", "--years", "-1", "--years"),
        ("cost", "--prices", "", "price"),
        ("cost", "--kwh", "0.1$", "--kwh"),
    ],
)
def test_a_malformed_value_is_named_in_one_line(emu, command, option, value, field) -> None:
    """The line has the field and the value."""
    more = () if command != "outage" or option == "--fault" else ("--fault", "link 0-4 from 10s to 40s")
    done = emu(command, *replaced((*COMMANDS[command], *more, *NEEDED.get(f"{command} {option}", ())), option, value))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert field in done.err
    assert value.rpartition(",")[2].rpartition(" ")[2].rpartition("=")[2] in done.err


def test_a_factor_that_is_no_number_is_refused(emu) -> None:
    """Sizes would never reach their end, or there would be one."""
    for factor in ("nan", "inf", "1"):
        done = emu("bench", *COMMANDS["bench"], "--begin", "1KiB", "--end", "1MiB", "--factor", factor)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "--factor must be above 1, got" in done.err
