"""Flags are few and stay: adding one to this list needs a line in the commit that says why."""

import click
import pytest

from launch.main import COMMANDS, emu
from launch.papers.catalogue import PAPERS

COMMON = {"--json", "--help", "--config"}  # a scenario is a file that can be kept and sent
ANSWER = {"--html", "--out"}  # a report that can be sent to somebody; its rows for another program, as they become known
BUILDS_NOTHING = {"compare", "calibrate"}  # and so has nothing to import
TIMED = {"--topology", "--device", "--dtype", "--algorithm", "--stack"}
TIMELINE = {"--timeline", "--every-rank"}  # the second: a file of all ranks of a large run is too large for most readers
# Ranks run in processes of Ray: on which, how many in one (torch takes memory in each), and where Ray places them.
CLUSTER = {"--cluster", "--ray-address", "--ranks-per-actor", "--ray-options"}
WORKERS = {"--workers", "--ray-address"}  # jobs are done by tasks of a Ray: the second, on which
FAULTS = {"--fault", "--png"}  # what a job meets while it runs, and the picture of it: no other flag says when a part fails
ENGINE = {"--fabric", "--network"}  # the engine of the times, and the network of packets: no other flag says how packets behave
CHECK = {"--check-fabric"}  # packets for a part of what the fluid engine times: no value of --fabric says "both"
PACE = {"--pace", "--pace-compute"}  # programs meet the fabric by the clock; the second: or messages alone do
FLAGS = {
    "verify": {"--algorithm", "--ranks", "--max-ranks", "--png"}
    | {"--dims"}  # a proof of the very grid that bench and show collective take
    | CLUSTER
    | WORKERS,
    "bench": {"--topology", "--algorithm", "--png", "--size", "--begin", "--end", "--factor", "--dtype", "--reduce", "--root"}
    | {"--ranks", "--dims", "--axes", "--timing-only", "--send-overhead", "--perturb", "--bounds", "--stack"}
    | ENGINE
    | CHECK
    | CLUSTER
    | WORKERS,
    # A request as of `emu bench`; the time that its search may take; the schedule as a picture, for GPUs and for numpy.
    "synthesize": {"--topology", "--ranks", "--size", "--dtype", "--root", "--time", "--png", "--xml", "--npz"},
    "train": {
        "--model",
        "--plan",
        "--topology",
        "--steps",
        "--global-batch",
        "--seq",
        "--data",
        "--seed",
        "--device",
        "--dtype",
    }
    | {"--algorithm", "--stack", "--trace"}
    | {
        "--checkpoint",
        "--checkpoint-every",
        "--elastic",
    }  # a job that outlives its NPUs needs a folder, and how often it writes
    | FAULTS
    | TIMELINE
    | PACE
    | ENGINE
    | CLUSTER,
    # Every rank prints the same: that of some may be enough.
    "run": TIMED
    | TIMELINE
    | PACE
    | ENGINE
    | FAULTS  # by the clock of --pace, or in the steps that it tells
    | CLUSTER
    | {"--ranks", "--trace", "--no-cuda", "--log-ranks"}
    | {"--pace-events"}  # the events of a script: a paced one may want to know what its host takes
    | {"--patience"}  # a rank may load data for long while all others wait for it; nobody else knows for how long
    | {"--module"}  # a script may be part of a package, which knows it by its name
    | {"--roles"},  # without data, which ranks do something of their own may be known better by who wrote the script
    "replay": TIMED
    | TIMELINE
    | FAULTS
    | ENGINE
    | CHECK
    | {"--perturb"}
    | {"--ran-on"}  # only the user knows on which of the networks a profile was taken, and only there is an error one of ours
    | {"--ranks"}  # how many ranks the job shall have that was recorded on fewer
    | {"--host-time", "--fill-ranks"},  # a profile has gaps of the host, and often not every rank: neither is taken unasked
    "estimate": {"--model", "--plan", "--topology", "--global-batch", "--seq", "--device", "--algorithm", "--stack"}
    | FAULTS
    | WORKERS
    | ENGINE
    | CHECK
    | {"--like"}  # only a profile knows how long a user's kernels take
    | {"--axes", "--scale-dp", "--trace", "--sweep"}  # an answer holds for more than one value
    | TIMELINE,
    "repro measured": {"--data", "--fit"},
    "repro nccl": {"--fit"},
    "repro torchtitan": {"--fit"},  # the clock of their machine is set anew
    "repro kernels": {"--fit"},
    "repro all": {"--docs", "--cache"} | WORKERS,  # pages of all papers are written
    **{
        f"repro {paper}": {"--table", "--figure", "--png", "--docs", "--cache"} | WORKERS for paper in PAPERS
    },  # figures are drawn
    "plan": {"--model", "--npus", "--topology", "--global-batch", "--seq", "--device", "--algorithm", "--stack"}
    | {"--plan", "--beside", "--cache", "--png"}  # words of a plan make a large search small
    | WORKERS
    | {"--sweep", "--top"}  # so does a short table
    | {"--all"},  # proofs beyond that of the first plan may take much longer than finding it
    "design": {"--model", "--npus", "--topology", "--global-batch", "--seq", "--device", "--algorithm", "--stack"}
    | {"--plan", "--cache", "--png", "--prices", "--npu", "--years", "--kwh"}  # as of a plan and of a cost
    | WORKERS
    | {"--budget", "--power"}  # what a machine may take
    | {"--faults"},  # the settings of `emu faults` in one: availability is one of four measures here
    "faults": {"--topology", "--tp", "--npus", "--log", "--servers", "--npus-per-server", "--npus-per-node", "--seed", "--png"}
    | {
        "--rate",
        "--draws",
        "--mtbf",
        "--afr",
        "--mttr",
        "--days",
        "--domain",
        "--checkpoint",
        "--restart",
        "--mfu",  # goodput is MFU times what faults and restarts leave
        "--job",  # how long one of a size waits for repairs
        "--prices",  # with --npu: what a network and the NPUs that faults take cost together
        "--npu",
    },
    "outage": {"--model", "--plan", "--topology", "--global-batch", "--seq", "--device", "--algorithm", "--axes", "--scale-dp"}
    | {"--stack", "--fault", "--png"}
    | {
        "--until",  # the end of the account: a job has no last step
        "--detect",  # what no topology knows: durations of detection, of the software's tries, checkpoints and restarts
        "--resend",
        "--checkpoint",
        "--checkpoint-every",
        "--restart",
    },
    # Settings are compared in one table: placement, shifts, shares and routes are words; the file has all else.
    "jobs": {"--topology", "--placement", "--shift", "--share", "--routes", "--steps", "--png", "--timeline"} | ENGINE,
    "cost": {"--topology", "--prices", "--across", "--years", "--kwh"}
    | {
        "--all-to-all",  # dollars for each GB/s of the traffic that experts make
        "--npu",  # the price of an NPU, which no paper's book has
        "--model",  # with the next five: the step of `emu estimate`, for performance over TCO
        "--plan",
        "--global-batch",
        "--seq",
        "--device",
        "--stack",
    },
    "queue": {"--topology", "--npus", "--tp", "--device", "--seed", "--png", "--checkpoint", "--checkpoint-every", "--restart"}
    | {"--log", "--servers", "--npus-per-server", "--npus-per-node", "--mtbf", "--afr", "--mttr", "--domain"}  # as `emu faults`
    | {
        "--arrivals",  # one's own jobs, or those of a published mix: so many, of such a load, in such a time
        "--mix",
        "--jobs",
        "--load",
        "--days",
        "--policy",
        "--faultless",  # what faults cost is the difference
        "--seeds",  # one draw says little of a wait: how far it is from the mean of all
    }
    | WORKERS,
    "compare": set(),
    "calibrate": {"--device", "--out", "--from"},  # the device of a profile is not here to be measured
    "show topology": {"--png", "--route"},
    "show collective": {"--png", "--ranks", "--dims", "--root", "--xml"},
    "show timeline": TIMED | TIMELINE | {"--png"},
    "show fabric-run": TIMED | ENGINE | {"--png", "--size", "--ranks", "--dims"},  # the last three: of a collective
    "list collectives": set(),
    "list topologies": set(),
    "list models": set(),
    "list devices": set(),
}


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = emu.get_command(click.Context(emu), name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": of for sub, of in command.commands.items()}
        else:
            found[name] = command
    return found


def test_every_command_is_listed() -> None:
    assert set(commands()) == set(FLAGS)


@pytest.mark.parametrize("name", FLAGS)
def test_a_command_has_the_flags_it_had(name: str) -> None:
    command = commands()[name]
    given = {max(p.opts, key=len) for p in command.params if isinstance(p, click.Option)} | {"--help"}
    built = set() if name in BUILDS_NOTHING else {"--import"}
    answer = set() if name == "calibrate" else ANSWER
    assert given == FLAGS[name] | COMMON | built | answer


@pytest.mark.parametrize("name", [n for n in FLAGS if not n.startswith("list ")])
def test_the_help_of_a_command_has_an_example(name: str) -> None:
    assert f"emu {name}" in (commands()[name].help or "")
