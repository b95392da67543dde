"""Questions drawn at random whose every figure is kept: a change that moves one of them must say so.

What a figure should be is asserted elsewhere, by closed forms, real runs and the papers. These questions only notice that a
figure has changed at all, in places that no one thought of. `python -m tests.figures` keeps the figures of today.
"""

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import emu
from benchmarks.composed.drawn import wide
from emu.errors import InputError
from tests.figures.intermediates import intermediates, of_page, of_text
from tests.figures.machine_questions import machine_questions
from tests.figures.more_questions import more_questions
from tests.trace.formats.profiles import two_ranks
from tests.trace.formats.test_gloo_groups import four_ranks

KEPT = Path(__file__).with_name("figures.json")
_DIGITS = 9  # of a figure; the last bits of a sum may depend on the processor
_FIRST = 300  # of the numbers of the drawn steps
_STEPS, _SMALL_STEPS = 36, 48
_DENSE = ("gpt-tiny", "nemotron-tiny", "llama-tiny")
_SPARSE = ("mixtral-tiny", "deepseek-tiny", "qwen3-moe-tiny", "grok-tiny", "gpt-moe-tiny")
_DEVICES = ("a100-80g", "ascend-910b-like", "b200", "gb200", "h100", "h200", "tpuv4")
_SWITCH = "switch:n=4,bandwidth=10GB/s,latency=1us"

_PAGES = 5  # every so manieth question is asked for its page, too

Figures = dict[str, str]  # for each field of an answer, a digest of its numbers


def questions() -> dict[str, Callable[[], Figures]]:
    """Return all questions by name, as functions that return the figures of their answers."""
    answers, further = answered(), {**machine_questions(), **more_questions()}
    plain = {name: partial(figures_of, question) for name, question in answers.items()}
    both = {name: partial(_with_page, question) for name, question in further.items()}
    pages = {f"page of {name}": partial(_page, answers[name]) for name in list(answers)[::_PAGES]}
    return {**plain, **pages, **intermediates(), **both}


def _page(question: Callable[[], Any]) -> Figures:
    """Return the digest of the page of an answer."""
    return of_page(question())


def _with_page(question: Callable[[], Any]) -> Figures:
    """Return digests of the figures that answer a question, of its text and of its page; of a refusal only that it is one."""
    try:
        found = question()
    except InputError:
        return {"refused": ""}
    return _by_field(found.to_dict()) | of_text(found) | of_page(found)


def figures_of(question: Callable[[], Any]) -> Figures:
    """Return digests of the figures that answer a question, by field, and of its text; of a refusal only that it is one."""
    try:
        found = question()
    except InputError:
        return {"refused": ""}
    return _by_field(found.to_dict()) | of_text(found)


def _by_field(answer: Any) -> Figures:
    fields: dict[str, list[tuple[str, ...]]] = {}
    for row, each in enumerate(answer if isinstance(answer, list) else [answer]):
        for (field, *path), number in _numbers(each):
            fields.setdefault(field, []).append((str(row), *path, number))
    return {field: hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8] for field, own in sorted(fields.items())}


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each number of an answer, rounded, with its place; times of this machine and sentences are no figures."""
    if isinstance(value, dict):
        for name, each in value.items():
            if "wall" not in name:
                yield from _numbers(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _numbers(each, (*path, str(number)))
    elif value is None or isinstance(value, int | float):
        yield path, f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


def answered() -> dict[str, Callable[[], Any]]:
    """Return the questions that have an answer with figures, by name, as functions that return it."""
    found = {f"step {number}": partial(_step, number) for number in range(_FIRST, _FIRST + _STEPS)}
    found |= {f"small step {number}": partial(_small_step, number) for number in range(_FIRST, _FIRST + _SMALL_STEPS)}
    return {**found, **_plans(), **_replays(), **_comparisons(), **_machines()}


def _step(number: int) -> Any:
    """Return an estimate of a step of any stack, order and fabric, as the benchmark of composed steps draws them."""
    step = wide(number)
    return emu.estimate(
        model=step.model, plan=step.words, stack=step.stack, topology=step.topology, global_batch=step.batch, seq=step.seq,
        axes=step.axes, algorithm=step.algorithms, device=random.Random(number).choice(_DEVICES),
    )  # fmt: skip


def _small_step(number: int) -> Any:
    """Return an estimate of a step of a tiny model of another architecture, every fourth of them by packets."""
    step, rng = wide(number), random.Random(number)
    model = rng.choice(_SPARSE if "ep=" in step.words else _DENSE)
    by = {"fabric": "packets", "network": rng.choice(("roce", "ultra-ethernet", "nvlink"))} if number % 4 == 0 else {}
    algorithm = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")
    return emu.estimate(
        model=model, plan=step.words, stack=step.stack, topology=step.topology, global_batch=step.batch, seq=64,
        algorithm=algorithm, device="h100", **by,
    )  # fmt: skip


def _plans() -> dict[str, Callable[[], Any]]:
    asked = (
        ("llama-tiny", "software=pytorch", "switch:n=8,bandwidth=5GB/s,latency=2us", "pp=2,recompute=none"),
        ("llama-tiny", "software=megatron", "servers:nodes=2,gpus=4", "recompute=none,microbatch=1"),
        ("mixtral-tiny", "software=megatron,dp=overlapped", "ub-mesh:rack", "tp=2,cp=1,recompute=none"),
        ("gpt-tiny", "software=pytorch", "fat-tree:radix=4", "tp=1,cp=1,pp=2"),
    )
    return {
        f"plan of {model}, {stack}": partial(
            emu.plan, model=model, npus=8, topology=topology, global_batch=16, seq=128, stack=stack, plan=words, top=6,
            algorithm=("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring", "all_to_all=at-once"),
        )
        for model, stack, topology, words in asked
    }  # fmt: skip


def _replays() -> dict[str, Callable[[], Any]]:
    def of(make: Callable[[Path], Any], **more: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            return emu.replay(Path(folder), **more)

    slow, ring = "switch:n=2,bandwidth=100MB/s,latency=0s", "ring:n=4,bandwidth=1GB/s,latency=3us"
    return {
        "replay of two ranks": partial(of, two_ranks, topology=slow),
        "replay of two ranks with the host's time": partial(of, two_ranks, topology=[slow], host_time=True),
        "replay of two ranks as more": partial(of, two_ranks, topology=ring, ranks=4),
        "replay of four ranks": partial(of, four_ranks, topology=[ring, _SWITCH]),
        "replay of four ranks with starts that vary": partial(of, four_ranks, topology=ring, perturb=3),
        "replay of four ranks by packets": partial(of, four_ranks, topology=_SWITCH, fabric="packets", network="roce"),
    }


def _comparisons() -> dict[str, Callable[[], Any]]:
    fabrics = (
        "torus:dims=4x4,bandwidth=25GB/s,latency=500ns",
        "servers:nodes=2",
        "hpn:segment:dims=4x4",
        "railx:torus:m=2,n=2,nodes=2x2",
    )
    return {
        f"{operation} on {fabric}": partial(emu.bench, operation, topology=fabric, algorithm="all", size=size)
        for fabric in fabrics
        for operation, size in (("all_reduce", "1MiB"), ("all_to_all", "64KiB"))
    }


def _machines() -> dict[str, Callable[[], Any]]:
    job = {"model": "llama-tiny", "plan": "tp=2,dp=4", "global_batch": 8, "seq": 64, "algorithm": "all_reduce=ring@2"}
    faulty = {"fault": ["nic 0 from 10s to 70s", "npu 3 from 140s to 170s"], "until": "220s", "checkpoint_every": "60s"}
    recovery = {"checkpoint": "2s", "restart": "20s", "resend": "every=17.2s,times=7"}
    lives = {"mtbf": "1000d", "mttr": "1d", "npus_per_node": 16, "days": "30d", "checkpoint": "60s", "restart": "300s"}
    hosts = ["servers:nodes=4,gpus=2,network=switch", "hpn:segment:dims=4x2,backup=1"]
    rated, sold = ["infinitehbd:k=3", "nvl:72", "tpuv4:cubes=5x3x3"], ["ub-mesh:pod", "hpn:pod", "nvl:72", "fat-tree:radix=64"]
    railx, optical = "railx:torus:m=4,n=9,nodes=32x32", ["infinitehbd:k=2", "nvl:72"]
    return {
        "outages": partial(emu.outage, topology=hosts, **job, **faulty, **recovery),
        "faults by rate": partial(emu.faults, topology=rated, tp=32, rate=0.01, draws=50),
        "faults of a job": partial(emu.faults, topology=optical, tp=[8, 32], rate=0.02, job=2560, draws=50),
        "faults by lifetimes": partial(emu.faults, topology=railx, tp=16, mfu=0.4, **lives),
        "costs": partial(emu.cost, topology=sold, across=True, years=3),
        "costs by a paper's book": partial(emu.cost, topology=optical, prices="infinitehbd", all_to_all=True),
    }


def kept() -> dict[str, Figures]:
    """Return the figures that are kept, by question."""
    found: dict[str, Figures] = json.loads(KEPT.read_text())
    return found
