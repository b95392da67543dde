"""Questions of collectives, files and pictures: synthesis, proofs, sweeps, faults, lists, and traces that are read back."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import emu
from tests.trace.formats.profiles import two_ranks
from tests.trace.formats.test_gloo_groups import four_ranks

Questions = dict[str, Callable[[], Any]]
_SWITCH = "switch:n=4,bandwidth=10GB/s,latency=1us"
_RINGS = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "gather", "scatter", "reduce")


def more_questions() -> Questions:
    """Return the questions of this file by name."""
    return dict([*_collectives(), *_steps(), *_profiles(), *_shows()])


def _collectives() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield syntheses, proofs and benches of every operation."""
    for number, operation in enumerate(_OPERATIONS):
        machine = (_SWITCH, "servers:nodes=2,gpus=2", "ring:n=6,bandwidth=1GB/s,latency=2us", "ub-mesh:board")[number % 4]
        asked = {"topology": machine, "size": ("24KiB", "1MiB", "12MB")[number % 3]}
        yield f"bench {operation}", partial(emu.bench, operation, algorithm="all", bounds="all", **asked)
        swept = {"begin": "1KiB", "end": "4MiB", "factor": 8.0, "ranks": 4, "send_overhead": "1us"}
        swept |= {"timing_only": True, "perturb": 3 * (number % 2)}
        yield f"sizes of {operation}", partial(emu.bench, operation, topology=machine, **swept)
        way = {"check_fabric": True} if number % 2 else {"fabric": "packets"}
        yield f"packets of {operation}", partial(emu.bench, operation, network="roce", **way, **(asked | {"size": "16KiB"}))
        yield f"proof of {operation}", partial(_proof, operation)
    ring = {"topology": "ring:n=4,bandwidth=1GB/s,latency=1us", "size": "1MiB"}
    for operation in ("all_gather", "reduce_scatter", "all_reduce", "broadcast"):
        yield f"synthesis of {operation}", partial(emu.synthesize, operation, **ring)


def _proof(operation: str) -> Any:
    """Return the proofs of an operation's algorithms, without the time that each took."""
    found = emu.verify(operation, max_ranks=5)
    return replace(found, rows=tuple(replace(row, wall_s=0.0) for row in found.rows))


def _steps() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield sweeps, faults and trainings of a small step."""
    step = {"model": "llama-tiny", "plan": "tp=2,dp=2", "global_batch": 8, "seq": 64, "topology": _SWITCH}
    yield "sweep", partial(emu.estimate, **step, algorithm=_RINGS, sweep=("seq=32,64", "device=h100,h200"))
    yield "step by packets that is checked", partial(emu.estimate, **step, algorithm=_RINGS, network="roce", check_fabric=True)
    for fault in ("npu 1 slow 0.5 at step 2", "link 0-4 slow 0.25 from step 2 to 3", "npu 2 at step 2"):
        yield f"step with {fault}", partial(emu.estimate, **step, algorithm=_RINGS, fault=[fault])
    yield "step of more data-parallel ranks", partial(emu.estimate, **(step | {"topology": "servers:nodes=2"}), scale_dp=True)


def _profiles() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield profiles that are compared."""
    for name, make in (("two", two_ranks), ("four", four_ranks)):
        yield f"comparison of {name} ranks", partial(_of_profile, make, lambda path: emu.compare(path, path))


def _of_profile(make: Callable[[Path], Any], question: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return question(Path(folder))


def _shows() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield lists and exhibits."""
    for name in ("collectives", "topologies", "models", "devices"):
        yield f"list of {name}", getattr(emu, f"list_{name}")
    for source in ("torchtitan", "kernels", "nccl"):
        yield f"measured {source}", partial(emu.repro, source)
    for machine in ("torus:dims=4x4,bandwidth=25GB/s,latency=500ns", "ub-mesh:rack", "hpn:segment:dims=4x4,backup=1"):
        yield f"topology {machine}", partial(emu.show_topology, machine)
