"""Where the fluid fabric is enough: `python -m benchmarks.fluid_and_packets [PNG]` prints two tables and draws the first.

On 12 fabrics of the catalogue an all_reduce, an all_to_all and a training step of llama-tiny are timed by both engines. The
first table has the time by packets divided by the fluid one: the mean of 3 runs, in each of which tasks that wait for nothing
start up to a packet's time later. Where it is more than 5 % from 1, the second says why: the same is run with properties of
the network left out, and the first change that halves the difference is told (all, where none does), with the port that held
others up longest.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import emu
from emu.errors import RunError
from emu.files import check_file
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.fabric_check import BEYOND
from emu.study.fabric_run import FabricRun
from emu.topology.topology import Topology
from emu.trace.trace import Trace
from emu.units import format_size, format_time
from launch.show.canvas import GREY, add_legend, dress, hue, new_page, save

LINK = "bandwidth=50GB/s,latency=500ns"
ETHERNET = ("roce", "ultra-ethernet", "infiniband")
FABRICS: dict[str, tuple[str, ...]] = {
    f"switch:n=16,{LINK}": ETHERNET,
    "fat-tree:radix=8": ETHERNET,
    "fat-tree:radix=8,taper=3": ETHERNET,
    "rail-optimised:radix=8": ETHERNET,
    "hpn:pod:dims=2x2x2,aggs=2": ETHERNET,
    "dragonfly:p=2,a=4,h=2": ETHERNET,
    f"torus:dims=4x4,{LINK}": ETHERNET,
    "hammingmesh:boards=4x4,side=2": ETHERNET,
    "railx:torus:m=2,n=2,nodes=4x4": ETHERNET,
    "ub-mesh:rack": ETHERNET,
    "dgx-h100:superpod:servers=4": ("nvlink",),
    "nvl:36": ("nvlink",),
}
NETWORKS = (*ETHERNET, "nvlink")
CELLS = {"nvlink": "packets:cell=4KiB"}  # 256 B each would be 16 times as many
COLLECTIVES, STEP = ("all_reduce", "all_to_all"), "training step"
SIZE = 2**18  # bytes of a rank's buffer for each rank
SEEDS = 3
# What is left out of a network, as settings of it, and in words.
ON_HASH = "on the path of the hash"
WITHOUT = {
    "roce": {
        "lossless=none": "without pauses",
        "forwarding=cut-through": "cut through",
        "acks=none,header=0B": "without headers and acknowledgements",
        "forwarding=cut-through,acks=none,header=0B": "cut through, without headers and acknowledgements",
    },
    "infiniband": {
        "credit=1GiB": "with credits for all",
        "switch=0s": "without the time of switches",
        "credit=1GiB,acks=none,switch=0s": "with credits for all, without acknowledgements and the time of switches",
    },
    "nvlink": {"credit=1GiB": "with credits for all", "header=0B": "without headers"},
    "ultra-ethernet": {
        "route=hash": ON_HASH,
        "queue=1GiB": "without trimming",
        "queue=1GiB,congestion=none": "without trimming and congestion control",
        "queue=1GiB,congestion=none,forwarding=cut-through": "cut through, without trimming and congestion control",
    },
}


@dataclass(frozen=True)
class Compared:
    """A question on a fabric by the packets of one network, beside the fluid fabric."""

    fabric: str
    question: str
    network: str
    found: FabricRun | None  # None: it has no time by packets
    ratio: float
    why: str  # the reason where it is far from 1, or where it has no time

    @property
    def is_far(self) -> bool:
        """True if the fluid fabric is more than 5 % off, or packets come to no end."""
        return self.found is None or abs(self.ratio - 1) > BEYOND

    @property
    def cell(self) -> str:
        """The cell of the first table."""
        ratio = "deadlock" if self.found is None else f"{self.ratio:.2f}"
        return f"**{ratio}**" if self.is_far else ratio


def step_of(topology: Topology) -> Trace:
    """A training step of llama-tiny on all NPUs, tensor parallel in pairs."""
    dp = topology.n_npus // 2
    return generate(find_model("llama-tiny"), parse_plan(f"dp={dp},tp=2", global_batch=dp, seq=128), Stack())


def run(question: str, topology: Topology, network: str) -> FabricRun:
    """One question on one fabric by the packets of one network, which may have settings."""
    fabric = CELLS.get(network.partition(":")[0], "packets")
    asked: dict[str, Any] = {"topology": topology, "network": network, "fabric": fabric}
    if question == STEP:
        return emu.show_fabric_run(step_of(topology), **asked).found
    return emu.show_fabric_run(question, size=SIZE * topology.n_npus, **asked).found


def ratio_of(found: FabricRun) -> float:
    """The mean time over perturbed starts, divided by the fluid time."""
    ends = [found.perturbed(seed).run.timeline.end_s for seed in range(SEEDS)]
    return float(np.mean(ends)) / found.fluid.end_s


def compare(fabric: str, question: str, network: str) -> Compared:
    """One cell of the first table, with its reason where it is far from 1."""
    topology = emu.build_topology(fabric)
    try:
        found = run(question, topology, network)
        ratio = ratio_of(found)
    except RunError as error:  # packets wait in a circle; a refusal ends the benchmark
        return Compared(fabric, question, network, None, 1.0, str(error))
    far = abs(ratio - 1) > BEYOND
    return Compared(fabric, question, network, found, ratio, reason(question, found, ratio) if far else "")


def reason(question: str, found: FabricRun, ratio: float) -> str:
    """Why the fluid time is far off: the first property without which the difference is halved, and what blocks most."""
    kind, tried = found.fabric.network.kind, {}
    for settings, words in WITHOUT[kind].items():
        tried[words] = ratio_of(run(question, found.topology, f"{kind}:{settings}"))
    explains = [words for words, value in tried.items() if abs(value - 1) <= 0.5 * abs(ratio - 1)]
    if ratio < 1 < tried.get(ON_HASH, 0.0):  # the fluid messages take the path of the hash, too
        explains = [ON_HASH]
    told = explains[:1] or list(tried)
    return f"{', '.join(f'{words} {tried[words]:.2f}' for words in told)}; {blocking(found)}"


def blocking(found: FabricRun) -> str:
    """The port that held others up longest, or in which most waited, with what it did."""
    if found.causes.trees:
        tree = found.causes.trees[0]
        ports, held = len({each.queue for deep, each in tree.ports() if deep}), len(found.held(tree.queue))
        beside = f", and with them {held} messages that do not go there" if held else ""
        return f"{found.port(tree.queue)} paused {ports} ports for {format_time(tree.held_fs / 1e15)}{beside}"
    figures = found.figures
    sent = f", {figures.trimmed:,} of {figures.packet_hops:,} packet hops trimmed" if figures.trimmed else ""
    full = figures.fullest[0] if figures.fullest else None
    return (f"most wait in {full.port}, {format_size(full.most_bytes)}" if full else "nothing waits") + sent


def rows(all_of: list[Compared]) -> Iterator[str]:
    """The lines of the first table."""
    yield f"| fabric | question | fluid | {' | '.join(NETWORKS)} |"
    yield "|---|---|---|" + "---|" * len(NETWORKS)
    for fabric in FABRICS:
        for question in (*COLLECTIVES, STEP):
            mine = {c.network: c for c in all_of if (c.fabric, c.question) == (fabric, question)}
            ran = [c.found for c in mine.values() if c.found]
            fluid = format_time(ran[0].fluid.end_s) if ran else ""
            told = f"{question}, {ran[0].name.split()[1]}" if ran and question != STEP else question
            cells = " | ".join(mine[network].cell if network in mine else "" for network in NETWORKS)
            yield f"| `{fabric}` | {told} | {fluid} | {cells} |"


def far_rows(all_of: list[Compared]) -> Iterator[str]:
    """The lines of the second table, the farthest first."""
    yield "| fabric | question | network | packets / fluid | why |\n|---|---|---|---|---|"
    far = [c for c in all_of if c.is_far]
    for c in sorted(far, key=lambda c: (c.found is not None, -abs(np.log(c.ratio)))):
        ratio = "" if c.found is None else f"{c.ratio:.2f}"
        yield f"| `{c.fabric}` | {c.question} | {c.network} | {ratio} | {c.why} |"


def picture(all_of: list[Compared]) -> Figure:
    """All ratios, a row for each fabric and question, with a band where the fluid fabric is enough."""
    places = [(fabric, question) for fabric in FABRICS for question in (*COLLECTIVES, STEP)]
    figure, axes = new_page(10, 9.5, "Time by packets divided by the fluid time; grey: within 5 %")
    axes.axvspan(1 - BEYOND, 1 + BEYOND, color=GREY, alpha=0.25, linewidth=0)
    for i, network in enumerate(NETWORKS):
        mine = [c for c in all_of if c.network == network and c.found]
        at = [places.index((c.fabric, c.question)) for c in mine]
        axes.plot([c.ratio for c in mine], at, "osD^"[i], color=hue(i), markersize=6, alpha=0.8, label=network)
    axes.set_yticks(range(len(places)), [f"{fabric.partition(',bandwidth')[0]}  {what}" for fabric, what in places], fontsize=8)
    axes.set_ylim(len(places) - 0.5, -0.5)
    for row in range(2, len(places) - 1, 3):
        axes.axhline(row + 0.5, color=GREY, linewidth=0.4)
    dress(axes, "time by packets / fluid time")
    add_legend(figure, axes, len(NETWORKS))
    return figure


def main() -> None:
    """Print both tables, and draw the first if a file is named."""
    drawn = [Path(word) for word in sys.argv[1:2]]
    for path in drawn:
        check_file("PNG", path)
    since, all_of = time.process_time(), []
    for fabric, networks in FABRICS.items():
        for question in (*COLLECTIVES, STEP):
            all_of += [compare(fabric, question, network) for network in networks]
        sys.stderr.write(f"{fabric}: {time.process_time() - since:.0f} s of CPU\n")
    sys.stdout.write("\n".join((*rows(all_of), "", *far_rows(all_of))) + "\n")
    for path in drawn:
        save(picture(all_of), path)


if __name__ == "__main__":
    main()
