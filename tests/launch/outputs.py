"""Words for each command with which it writes all that it can write, in as little time as can be.

A command with an option that names an output and is in none of these fails a test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.calibrate import Calibration
from emu.trace.trace_file import save
from launch.data.devices import DEVICES
from launch.front import calibrations, publications
from launch.papers.catalogue import PAPERS
from launch.papers.paper import Curve, Figure, Paper
from tests.launch.papers.test_measured import HEAD, ROW
from tests.launch.test_verify import BROKEN

SWITCH = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns")
MODEL = ("--model", "llama-tiny", "--seq", "16", "--global-batch", "2")
FAULT = ("--fault", "npu 1 slow 0.5 at step 2")
RING = ("--algorithm", "all_reduce=ring")
SCRIPT = """import torch, torch.distributed as dist
dist.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make nothing beside."""


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a collective that is wrong, which a picture shows."""
    Path("broken.py").write_text(BROKEN)


def trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a trace."""
    save(generate(find_model("llama-tiny"), Plan(dp=2, global_batch=2, seq=16), Stack()), Path("step.trace"))


def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a script that trains."""
    Path("script.py").write_text(SCRIPT)


def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs that were measured."""
    rows = (HEAD, ROW, ROW.replace("a,somebody,own-llama,4", "b,somebody,other-llama,6"))
    Path("runs.csv").write_text("\n".join(rows) + "\n")


def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a device measured that takes no time to measure."""
    monkeypatch.setattr(calibrations, "probes", lambda _: [])
    monkeypatch.setattr(calibrations, "layers", lambda _: [])
    monkeypatch.setattr(calibrations, "calibrated", lambda *_: Calibration(DEVICES["h100"], ()))


def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have papers of no row and one figure each."""
    Path("notes.md").touch()
    figure = Figure("a figure", "x", "y", (Curve("a", (0.0, 1.0), (0.0, 1.0)),))
    drawn = Paper(Path(), "A paper", "Somebody, A paper, 2026", figures={"1": lambda _: figure}, chosen=[])
    monkeypatch.setattr(publications, "PAPERS", dict.fromkeys(PAPERS, lambda _: drawn))


def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file of two jobs."""
    loop = 'operation = "all_reduce"\nalgorithm = "ring"\nsize = "1KiB"\nranks = 2\n'
    Path("jobs.toml").write_text("".join(f'[[job]]\nname = "{name}"\n{loop}' for name in "ab"))


@dataclass(frozen=True)
class Case:
    """A command that ends in no time, and what it writes."""

    command: str
    words: tuple[str, ...]
    options: tuple[str, ...]  # that name outputs
    prepare: Callable[[pytest.MonkeyPatch], None] = nothing
    says: str = ""  # the line that it ends with, where all is written
    after: tuple[str, ...] = ()  # words that stand at the end

    @property
    def files(self) -> dict[str, str]:
        """Return the file that each option names."""
        named = {"--out": "mine.toml" if self.command == "calibrate" else "rows.csv", "--docs": "pages"}
        return {option: named.get(option, f"file.{option.removeprefix('--')}") for option in self.options}

    def given(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """The words of the command line."""
        return (*self.command.split(), *self.words, *(word for pair in files.items() for word in pair), *self.after)


def case(name: str, words: tuple[str, ...], *options: str, prepare: Callable[..., None] = nothing, says: str = "") -> Case:
    """A case in few words; every command but one that measures a device has a report and rows."""
    answer = () if name == "calibrate" else ("--html", "--out")
    return Case(name, words, (*(option for option in options if option not in answer), *answer), prepare, says)


PLAN = (*MODEL, "--npus", "2", "--top", "1", "--plan", "dp=2,recompute=none", *SWITCH)
DESIGN = (*MODEL, "--npus", "2", "--plan", "dp=2,recompute=none", "--topology", "ub-mesh:board:lane_rate={7GB/s,14GB/s}")
STEP = (*MODEL, "--plan", "dp=2", *SWITCH)
RUN = ("--ranks", "2", *SWITCH, *RING)
CASES = (
    case("verify", ("--import", "broken.py", "--ranks", "4"), "--png", prepare=broken, says="verify: 3 of 3 fail"),
    case("bench", ("all_reduce", *SWITCH, "--algorithm", "ring", "--size", "1KiB"), "--png"),
    case("bench", ("all_reduce", *SWITCH, "--algorithm", "all", "--size", "1KiB"), "--png"),
    case("synthesize", ("all_gather", *SWITCH, "--size", "1KiB"), "--png", "--xml", "--npz"),
    case("queue", ("--topology", "nvl:72", "--mix", "acme", "--jobs", "9", "--days", "1", "--faultless"), "--png"),
    case("queue", ("--topology", "nvl:72", "--mix", "acme", "--jobs", "9", "--faultless", "--seeds", "2"), "--png", "--out"),
    case("train", (*STEP, *RING, "--steps", "1"), "--html", "--timeline", "--trace"),
    case("train", (*STEP, *RING, "--steps", "2", *FAULT), "--png", "--trace"),
    case("estimate", STEP, "--html", "--timeline", "--trace", "--png"),
    case("estimate", (*STEP, *FAULT), "--png"),
    case("estimate", (*STEP, "--sweep", "seq=16,32"), "--out", "--png", "--html"),
    case("replay", ("step.trace", *SWITCH, *RING), "--html", "--timeline", prepare=trace),
    case("replay", ("step.trace", *SWITCH, *RING, *FAULT), "--png", prepare=trace),
    case("plan", PLAN, "--html", "--png"),
    case("plan", (*PLAN, "--sweep", "seq=16,32"), "--out", "--png", "--html"),
    case("design", (*DESIGN, "--stack", "software=megatron"), "--png", "--html"),
    case("faults", ("--topology", "nvl:72", "--tp", "32"), "--png", "--html"),
    case("outage", (*STEP, "--fault", "link 0-4 from 1s to 2s", "--until", "3s", "--restart", "500ms"), "--png", "--html"),
    case("jobs", ("jobs.toml", *SWITCH, "--steps", "1"), "--png", "--timeline", prepare=jobs),
    case("cost", ("--topology", "nvl:72")),
    case("compare", ("step.trace", "step.trace"), prepare=trace),
    *(case(f"list {what}", ()) for what in ("collectives", "topologies", "models", "devices")),
    case("calibrate", ("--device", "cpu"), "--out", prepare=measured),
    case("show topology", ("ub-mesh:board",), "--png"),
    case("show collective", ("all_reduce", "ring", "--ranks", "3"), "--png", "--xml"),
    case("show timeline", ("step.trace", *SWITCH, *RING), "--png", "--timeline", prepare=trace),
    case("show fabric-run", ("all_to_all", *SWITCH, "--size", "64KiB"), "--png"),
    case("repro all", (), "--docs", prepare=one_figure),
    *(case(f"repro {name}", ("--figure", "1"), "--png", prepare=one_figure) for name in PAPERS),
    *(case(f"repro {name}", (), "--docs", prepare=one_figure) for name in PAPERS),
    case("repro measured", ("--data", "runs.csv"), "--fit", prepare=runs),
    case("repro nccl", ()),
    case("repro torchtitan", (), "--fit"),
    case("repro kernels", (), "--fit"),
    Case("run", RUN, ("--html", "--timeline", "--trace", "--out"), script, after=("script.py",)),
    Case("run", (*RUN, *FAULT), ("--png", "--trace"), script, after=("script.py",)),
)
# These write while they compute, and say so at once: checkpoints, and results that are kept.
MEANWHILE = {
    ("train", "--checkpoint"),
    ("plan", "--cache"),
    ("design", "--cache"),
    *((f"repro {name}", "--cache") for name in (*PAPERS, "all")),
}
