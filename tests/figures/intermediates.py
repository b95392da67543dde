"""Intermediate results, which show in few figures of an answer: generated traces, bounds of plans, pages and files.

Each question returns digests by name, as the figures of an answer are digests by field.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.composed.drawn import wide
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.model import find_model
from emu.model.stack.stack import parse_stack
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.plan_request import Candidate
from emu.study.training.timed_step import GeneratedStep
from emu.topology.catalogue import build_topology
from emu.trace.formats.trace_formats import write_trace
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device
from launch.front.steps.replays import load_trace
from tests.figures.drawn_steps import drawn_step, refusals
from tests.study.planning.spaces import candidates, drawn, of, tightest_s, times

Digests = dict[str, str]
_FIRST, _TRACES = 400, 150  # of the numbers of the wide steps
_DRAWN, _REFUSALS = 200, 20  # steps with any settings; and of 300 each, some of which are refused
_SPACES, _CANDIDATES = 30, 6  # of drawn searches, and of the plans of each
_ENDINGS = (".et", ".json", ".goal", ".trace")
_RINGS = Choice({"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "all_to_all": "at-once"})
# Times of this machine, names of temporary folders, and bytes of pictures, which fonts and libraries decide.
_CHANGING = re.compile(r", in \d[\d.]* m?s|tmp\w{8}|base64,[\w+/=]*")
_LONG = re.compile(r"\d+\.\d{5,}(?:e[+-]?\d+)?")  # the last bits of a sum may depend on the processor
_NUMBER = re.compile(r"\d[\d,.]*(?:e[+-]?\d+)?")  # words may be mended: only numbers are kept


def digest(value: Any) -> str:
    """Return a short digest of a value, as JSON."""
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:8]


def of_text(answer: Any) -> Digests:
    """Return the digest of the numbers in an answer as it is printed."""
    return {"(text)": digest(_numbers(repr(answer)))}


def of_page(answer: Any) -> Digests:
    """Return the digest of the page of an answer: its text, its tables and its drawings, with rounded numbers."""
    page = _CHANGING.sub("", answer._repr_html_())
    return {"(page)": digest(_LONG.sub(lambda found: f"{float(found[0]):.9g}", page))}


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(_CHANGING.sub("", text))


def intermediates() -> dict[str, Callable[[], Digests]]:
    """Return all questions of this file by name."""
    numbers = range(_FIRST, _FIRST + _TRACES)
    found: dict[str, Callable[[], Digests]] = {f"trace of step {n}": partial(_wide_trace, n) for n in numbers}
    found |= {f"trace of drawn step {seed}": partial(_drawn_trace, seed) for seed in range(_DRAWN)}
    found |= {f"refusals of steps {seed}": partial(_refusals, seed) for seed in range(_REFUSALS)}
    found |= {f"files of step {number}": partial(_files, number) for number in numbers[::10]}
    return found | {f"bounds of space {seed}": partial(_bounds, seed) for seed in range(_SPACES)}


def _generated(number: int) -> GeneratedStep:
    step = wide(number)
    return GeneratedStep(find_model(step.model), step.plan, parse_stack(step.stack))


def _wide_trace(number: int) -> Digests:
    """Return digests of a trace of one of the wide steps."""
    return _trace(_generated(number))


def _refusals(seed: int) -> Digests:
    """Return the digest of what is said of drawn steps that are refused."""
    return {"said": digest(refusals(seed, 300))}


def _drawn_trace(seed: int) -> Digests:
    """Return digests of a trace with any settings, and of the bounds of its memory."""
    name, plan, stack = drawn_step(seed)
    model = find_model(name)
    return _trace(GeneratedStep(model, plan, stack)) | {"floor": digest(MemoryFloors(model, stack).bytes(plan))}


def _trace(step: GeneratedStep) -> Digests:
    """Return digests of a generated trace: its events, the work of its step, and the bytes of each part of memory."""
    try:
        trace = step.trace
    except InputError:
        return {"refused": ""}
    meta = {key: value for key, value in trace.meta if "version" not in key}
    return {"events": trace.digest()[:8], "meta": digest(meta), "memory": digest(trace.peak_by_part.tolist())}


def _files(number: int) -> Digests:
    """Return digests of the files of a generated trace, in each format that Emu writes."""
    step = wide(number)
    layout = TraceLayout(
        _generated(number).trace, _RINGS, build_topology(step.topology), find_device("h100", "bfloat16"), "bfloat16"
    )
    found: Digests = {}
    for ending in _ENDINGS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"x{ending}")
            found[ending] = _written(layout, path)
            found[f"{ending} read again"] = _read(path.parent if ending == ".et" else path)
    return found


def _written(layout: TraceLayout, path: Path) -> str:
    try:
        write_trace(layout, path)
    except InputError as error:
        return f"refused: {digest(str(error))}"
    files = sorted(path.parent.glob(f"x*{path.suffix}"))
    return digest([(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])


def _read(path: Path) -> str:
    """Return the digest of a trace that is read from a file, with what a profile says of the host's time and of kernels."""
    try:
        traces = [load_trace(path, host_time=host_time) for host_time in (False, True)]
    except InputError as error:
        return f"refused: {digest(_CHANGING.sub('', str(error)))}"
    return digest([(trace.digest(), [(key, value) for key, value in trace.meta if "version" not in key]) for trace in traces])


def _bounds(seed: int) -> Digests:
    """Return digests of the bounds of some plans of a drawn search, of step times and of memory."""
    request, line, _ = drawn(seed, 4000, 64)
    placed, found, asked = of(request, line), candidates(request), times(request, line)
    few = found[seed % 7 :: max(1, len(found) // _CANDIDATES)]
    floors = MemoryFloors(find_model(request.model), request.stack)
    bounds: dict[str, Callable[[Candidate], float]] = {
        "by sequence": lambda each: placed.quick.by_sequence_s(each.plan),
        "by own passes": lambda each: placed.quick.by_own_passes_s(each.plan),
        "anywhere": lambda each: placed.anywhere_s(each.plan)[0],
        "by reductions": lambda each: placed.reduced_s(each.plan),
        "by ports": placed.by_ports_s,
        "tightest": lambda each: tightest_s(placed, each, asked),
        "memory": lambda each: floors.bytes(each.plan),
    }
    return {name: digest([_bound(bound, each) for each in few]) for name, bound in bounds.items()}


def _bound(bound: Callable[[Candidate], float], candidate: Candidate) -> str:
    try:
        return f"{bound(candidate):.9g}"
    except InputError as error:
        return str(error)
