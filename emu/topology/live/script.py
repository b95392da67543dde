"""The faults of a job: as they are written, in a TOML file of them, or drawn by rates and a seed.

A file has `faults = ["link 3-7 at step 2", ...]`; drawn ones are `random link=0.01 npu=0.002 slow=0.5 repair=2 seed=3`:
rates are of a part and step, slow the share of faults that slow down, repair the steps that one lasts. With `every=1ms` all are
at times, and each such span of time counts as a step.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.live.check import cables, check_alike, check_faults
from emu.topology.live.fault import Fault, parse_fault
from emu.topology.read.values import load_toml
from emu.topology.topology import Topology
from emu.units import parse_time

RANDOM = "random"
_RATES = ("link", "npu", "switch", "rank")  # by which parts are drawn, a probability for each part and step
_WORDS = (*_RATES, "slow", "repair", "steps", "seed", "every")
_STEPS = 20  # of a job that has as many as it takes
_SHARES = (0.25, 0.5, 0.75)  # of its speed that a slow part has left


def read_faults(words: Iterable[str]) -> tuple[str, ...]:
    """The faults that words say, as text: a word may be a file of them.

    Raises:
        InputError: a file that cannot be read, or that has something else; a fault that is none.
    """
    found = [text for word in words for text in (_of_file(word) if word.endswith(".toml") else [word])]
    for text in found:
        if _is_drawn(text):
            _rates(text)
        else:
            parse_fault(text)
    return tuple(found)


def _of_file(name: str) -> list[str]:
    table = load_toml(Path(name), "fault", name)
    for key in table:
        if key != "faults":
            raise unknown(f"key of {name}", key, ("faults",))
    texts = table.get("faults", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or not texts:
        raise must_be(name, "faults", 'texts, such as ["link 3-7 at step 2"]', texts)
    return texts


def faults_of(texts: Sequence[str], topology: Topology, ranks: int, steps: int, *, clock: bool = False) -> tuple[Fault, ...]:
    """The faults of texts, on a machine: random ones are drawn for it.

    Args:
        texts: As of `read_faults`.
        topology: When it is whole.
        ranks: Of the job.
        steps: Of the job.
        clock: Whether times have a meaning.

    Raises:
        InputError: as `check_faults`.
    """
    said = said_in(texts)
    check_faults(said, topology, ranks, steps, clock=clock)
    rates = [_rates(text) for text in texts if _is_drawn(text)]
    if not clock and any("every" in each for each in rates):
        raise InputError("fault: every of random faults must be left out, as there is no clock here; they are then at steps")
    found = (*said, *(fault for each in rates for fault in _drawn(each, topology, ranks, steps)))
    check_alike(found)
    return found


def said_in(texts: Sequence[str]) -> tuple[Fault, ...]:
    """Those of texts that are not drawn."""
    return tuple(parse_fault(text) for text in texts if not _is_drawn(text))


def at_times(texts: Sequence[str]) -> bool:
    """Whether any is at a time."""
    drawn = [_rates(text) for text in texts if _is_drawn(text)]
    return any(fault.timed for fault in said_in(texts)) or any("every" in rates for rates in drawn)


def job_steps(texts: Sequence[str]) -> int:
    """The steps of a job that has as many as it takes: one more than any fault names, or what random ones are drawn over."""
    said = said_in(texts)
    drawn = [int(_rates(text).get("steps", _STEPS)) for text in texts if _is_drawn(text)]
    return max([1, *drawn, *((fault.last or fault.first) + 1 for fault in said if not fault.timed)])


def _is_drawn(text: str) -> bool:
    return text.split()[:1] == [RANDOM]


def _rates(text: str) -> dict[str, float]:
    """What a text such as `random link=0.01 seed=3` sets.

    Raises:
        InputError: a word that is unknown or given twice, or a number that cannot be.
    """
    found: dict[str, float] = {}
    for word in text.split()[1:]:
        name, _, value = word.partition("=")
        if name not in _WORDS:
            raise unknown("word of random faults", name, _WORDS)
        if name in found:
            raise InputError(f"fault: {name} is given twice in {text!r}; give it once")
        found[name] = _number(name, value, text)
    if not any(name in found for name in _RATES):
        raise must_be(
            "fault", repr(text), f"random with a rate of {', '.join(_RATES)}", text, "such as random link=0.01 seed=3"
        )
    return found


def _number(name: str, value: str, text: str) -> float:
    if name == "every":
        return float(parse_time(value, f"fault: every of {text!r}"))
    whole = name in ("repair", "steps", "seed")
    if whole and not re.fullmatch(r"[0-9]{1,18}", value):
        raise must_be("fault", f"{name} of {text!r}", "a whole number of 0 or more", value)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not whole and not 0 <= number <= 1:
        raise must_be("fault", f"{name} of {text!r}", "a share of 0 to 1", value, f"take {min(1, max(0, number)):g}")
    return number


def _drawn(rates: dict[str, float], topology: Topology, ranks: int, steps: int) -> Iterator[Fault]:
    """Faults in the order of steps; each part of each kind fails in a step with its rate, and no more while it is so."""
    draw = np.random.default_rng(int(rates.get("seed", 0)))
    parts = {
        "link": [tuple(pair) for pair in cables(topology).tolist()],
        "npu": [(npu,) for npu in range(topology.n_npus)],
        "switch": [(switch,) for switch in range(topology.n_npus, topology.n_nodes)],
        "rank": [(rank,) for rank in range(ranks)],
    }
    until: dict[tuple[str, tuple[int, ...]], int] = {}
    steps = int(rates.get("steps", _STEPS)) if "every" in rates else steps
    for step in range(1, steps + 1):
        for kind in (name for name in _RATES if name in rates):
            hit = np.flatnonzero(draw.random(len(parts[kind])) < rates[kind])
            for at in (parts[kind][i] for i in hit.tolist()):
                if until.get((kind, at), 0) < step:
                    fault = _of_kind(kind, at, step, rates, draw)
                    until[kind, at] = steps if fault.last is None else fault.last
                    yield _at_time(fault, rates["every"], draw.random()) if "every" in rates else fault


def _at_time(fault: Fault, every_fs: float, share: float) -> Fault:
    """Of a fault at a step one at a time within the span that counts as that, and as many spans long."""
    first = round((fault.first - 1 + share) * every_fs)
    last = None if fault.last is None else first + round((fault.last + 1 - fault.first) * every_fs)
    return replace(fault, first=first, last=last, timed=True)


def _of_kind(kind: str, at: tuple[int, ...], step: int, rates: dict[str, float], draw: np.random.Generator) -> Fault:
    if kind == "rank":
        return Fault(kind, at, step)
    repair = int(rates.get("repair", 0))
    slow = draw.random() < rates.get("slow", 0.0)
    share = float(draw.choice(_SHARES)) if slow else 0.0
    return Fault(kind, at, step, step + repair - 1 if repair else None, share)
