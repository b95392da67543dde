"""Questions of machines that several jobs share, that fail, or that are yet to be chosen."""

import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import emu

Questions = dict[str, Callable[[], Any]]
_POLICIES = ("fifo", "backfill", "shortest", "preempt", "defragment")
_MIXES = ("acme", "alibaba", "helios", "philly")
_MACHINES = {  # numbers of NPUs
    "nvl:72": (None, 288, 1008),
    "infinitehbd:dims=1x16x2x4,tp=32": (None, 256, 512),
    "servers:nodes=32": (None, 512),
    "tpuv4:cubes=2x2x2": (None, 1024),
    "hpn:segment:dims=4x8,backup=1": (None, 96, 320),
}
_SHARED = (
    "ring:n=8,bandwidth=1GB/s,latency=1us",
    "servers:nodes=4,gpus=4",
    "fat-tree:radix=4",
    "hpn:segment:dims=4x4,backup=1",
    "torus:dims=4x4,bandwidth=5GB/s,latency=500ns",
)
_PLACEMENTS = ("packed", "spread", "spread:unit=2", "rails", "segments", "random:seed=3,unit=2", "own")
_SHARES, _SHIFTS = ("weights", "fair", "intensity"), ("none", "circle")
_PLAN = "recompute=none,sharding=ddp,microbatch=1,pp=1,cp=1"
_NPU = ("h100:dollars=30000,watts=700", "h800:dollars=26000,watts=650")
_BOOK = """
source = "offers of May"
[any]
free = ["NPU", "link*"]
[any.parts]
cable = { dollars = [100, 300], watts = 2 }
switch = { dollars = [1000, 9000], watts = [300, 500] }
"""


def machine_questions() -> Questions:
    """Return the questions of this file by name."""
    return dict([*_queues(), *_side_by_side(), *_designs(), *_failing()])


def _queues() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield queues of drawn jobs, of listed jobs, and over seeds."""
    for number, (policy, machine) in enumerate(product(_POLICIES, _MACHINES)):
        rng = random.Random(number)
        asked: dict[str, Any] = {
            "mix": rng.choice(_MIXES), "jobs": rng.choice((60, 150)), "load": rng.choice((0.7, 1.0, 1.5)),
            "days": rng.choice((4.0, 9.0)), "tp": rng.choice((4, 8, 32)), "npus": rng.choice(_MACHINES[machine]),
            "seed": number,
        }  # fmt: skip
        asked |= rng.choice(({"faultless": True}, {"mtbf": "40d", "mttr": "6h"}, {"afr": "0.9", "mttr": "1d"}, {}))
        asked |= rng.choice(({}, {"checkpoint": "200s", "checkpoint_every": "1h", "restart": "10min"}))
        yield f"queue {policy} on {machine}", partial(emu.queue, topology=machine, policy=policy, **asked)
    for seed in range(2):
        yield f"listed queue {seed}", partial(_listed_queue, seed)
    yield "queues over seeds", _over_seeds


def _over_seeds() -> Any:
    """Return queues over several seeds, all simulated in this process."""
    asked = {"mix": "philly", "jobs": 50, "days": 3.0, "mtbf": "30d", "mttr": "8h", "tp": 8, "npus": 288}
    with patch("launch.front.job_queues._PROCESSES", 1):
        return emu.queue(topology=["nvl:72", "servers:nodes=36"], policy=_POLICIES[:2], seeds=4, **asked)


def _listed_queue(seed: int) -> Any:
    """Return a queue of jobs of a file: some give their time, others their model; priorities differ."""
    rng = random.Random(seed)
    lines, submit = ["submit,npus,seconds,priority,model,plan,global_batch,seq,steps"], 0
    for _ in range(60):
        submit += rng.choice((0, 0, 300, 900))
        work = (
            f'8,,{rng.randint(0, 3)},llama-tiny,"tp=2,dp=4",8,64,{rng.randint(1, 9)}00000'
            if rng.random() < 0.3
            else f"{rng.choice((1, 2, 4, 8, 12, 16, 24))},{rng.randint(200, 20000)},{rng.randint(-1, 2)},,,,,"
        )
        lines.append(f"{submit},{work}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.csv")
        path.write_text("\n".join(lines) + "\n")
        return emu.queue(
            topology=("servers:nodes=4", "torus:dims=4x8,bandwidth=25GB/s,latency=500ns")[seed % 2], arrivals=path, tp=4,
            days=2.0, policy=_POLICIES, mtbf="20d", mttr="3h", seed=seed,
        )  # fmt: skip


def _side_by_side() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield jobs that share a fabric, in all placements, shifts and shares."""
    for number, machine in enumerate(_SHARED):
        asked = {"topology": machine, "shift": _SHIFTS, "share": _SHARES, "steps": 3}
        rng = random.Random(number)
        placements = rng.sample(_PLACEMENTS, 2) if number else ("packed", "spread")
        yield f"jobs on {machine}", partial(emu.jobs, {"job": _jobs(rng)}, placement=placements, **asked)
    settings = {"time": "composed", "steps": 3, "placement": "spread:unit=2"}
    composed = {"settings": settings, "job": _jobs(random.Random(9))}
    yield "composed jobs", partial(emu.jobs, composed, topology=_SHARED[1], shift=_SHIFTS, share=("weights", "intensity"))
    by = {"fabric": "packets:cell=4KiB", "network": "roce", "steps": 2, "placement": "spread"}
    even = [{**job, "weight": 1} for job in _jobs(random.Random(5), 16_000)]
    yield "jobs by packets", partial(emu.jobs, {"job": even}, topology=_SHARED[1], **by)


def _jobs(rng: random.Random, size: int = 1_000_000) -> list[dict[str, Any]]:
    """Return two loops and a training, which take eight NPUs together."""
    loops = [
        {
            "name": name, "operation": rng.choice(("all_reduce", "all_gather")), "algorithm": "ring", "ranks": ranks,
            "size": size * rng.randint(1, 4), "pause": f"{rng.randint(0, 2000)}us", "start": f"{rng.randint(0, 500)}us",
            "weight": rng.randint(1, 4),
        }
        for name, ranks in (("first", 3), ("second", 3))
    ]  # fmt: skip
    training = {
        "name": "trains", "model": rng.choice(("llama-tiny", "gpt-tiny")), "plan": rng.choice(("dp=2", "pp=2", "tp=2")),
        "global_batch": 4, "seq": 32, "algorithm": ["all_reduce=ring", "all_gather=ring", "reduce_scatter=ring"],
    }  # fmt: skip
    return [*loops, training]


def _designs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield designs over networks, devices, sizes and limits."""
    small = (
        "switch:n=4,bandwidth={10GB/s,50GB/s},latency=500ns", "torus:dims=2x2,bandwidth={10GB/s,50GB/s},latency=500ns",
    )  # fmt: skip
    sold = ("ub-mesh:board:lane_rate={7GB/s,14GB/s}", "fat-tree:radix={4,6}", "nvl:72")
    limits = (
        (small, {}), (small, {"budget": "125k$"}), (sold, {"power": "4kW"}),
        (small, {"years": 3, "kwh": 0.2, "faults": "tp=2,rate=2%,draws=50"}), (sold, {"years": 2}),
    )  # fmt: skip
    for number, (networks, more) in enumerate(limits):
        asked = {"model": ("llama-tiny", "gpt-tiny")[number % 2], "global_batch": 8, "seq": 64, "plan": _PLAN, "npu": _NPU}
        asked |= {"npus": "2,4", "device": ["h100", "h800"], "stack": "software=megatron", **more}
        yield f"design {number}", partial(_design, topology=networks, **asked)


def _design(**asked: Any) -> Any:
    """Return a design without what earlier ones have kept, one job after another: how many are timed depends on it."""
    with tempfile.TemporaryDirectory() as folder, patch("os.cpu_count", return_value=1):
        book = Path(folder, "book.toml")
        book.write_text(_BOOK)
        more = {"prices": book} if str(asked["topology"][0]).startswith("switch") else {}
        return emu.design(cache=Path(folder), **more, **asked)


def _failing() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield machines whose parts fail: the shares that serve, and jobs over time."""
    lasting = (
        {"rate": 0.03}, {"mtbf": "300d", "mttr": "1d", "days": "60d"}, {},
        {"afr": "40%", "mttr": "2d", "days": "90d", "domain": "npus=64,mtbf=90d,mttr=4h", "npus_per_node": 8},
    )  # fmt: skip
    more = (
        {},
        {"checkpoint": "60s", "restart": "300s", "mfu": 0.4},
        {"job": 128},
        {"prices": "infinitehbd", "npu": "dollars=30000,watts=700"},
    )
    machines = (
        "infinitehbd:k=3",
        "nvl:72",
        "tpuv4:cubes=3x3x2",
        "hpn:segment:dims=4x8,backup=1",
        "railx:torus:m=2,n=2,nodes=8x8",
    )
    for number, (machine, spells) in enumerate(product(machines, lasting)):
        drawn = {"draws": 40} if "rate" in spells else more[number // 4 % 4]
        asked = {"tp": [8, 16], "seed": number, **spells, **drawn}
        yield f"faults {number} of {machine}", partial(emu.faults, topology=machine, **asked)
    job = {"model": "llama-tiny", "plan": "tp=2,dp=2", "global_batch": 4, "seq": 32, "topology": _SHARED[1]}
    again = {"resend": "every=17s,times=3", "restart": "20s", "checkpoint": "1s", "checkpoint_every": "30s", "detect": "2s"}
    faults = (
        ["npu 1 slow 0.5 flaps 2s every 5s from 10s to 20s"], ["nic 1 from 10s to 15s", "npu 0 slow 0.3 from 12s to 60s"],
        ["random link=0.02 every=20s"], ["npu 2 from 30s to 50s", "nic 0 slow 0.1 from 20s to 90s"],
    )  # fmt: skip
    for number, fault in enumerate(faults):
        yield f"outages {number}", partial(emu.outage, **job, fault=fault, until="400s", algorithm="all_reduce=ring@2", **again)
