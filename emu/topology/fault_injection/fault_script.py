"""The faults of a job as texts, from the command line, from a TOML file, or drawn at random by rates and a seed.

A file has `faults = ["link 3-7 at step 2", ...]`. Random faults are `random link=0.01 npu=0.002 slow=0.5 repair=2 seed=3`. A
rate is the probability of a fault of each part in each step. `slow` is the share of faults that only slow a part down. `repair`
is the number of steps that a fault lasts. With `every=1ms` the faults are at times, and each such span of time counts as a
step.

A part that comes and goes is `link 3-7 flaps 100ms every 2s from 10s to 20s`: a fault for each time that it is down.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.description.values import load_toml
from emu.topology.fault_injection.fault import Fault, cables, check_clocks, check_faults, parse_fault
from emu.topology.topology import Topology
from emu.units import parse_time

RANDOM = "random"
_RATES = ("link", "npu", "switch", "rank")  # kinds of parts that have a rate
_WORDS = (*_RATES, "slow", "repair", "steps", "seed", "every")
_FLAPS = re.compile(
    r"(?P<part>.+?) +flaps +(?P<down>\S+) +every +(?P<every>\S+) +from +(?P<first>(step +)?\S+) +to +(?P<last>\S+)"
)
_MOST_FLAPS = 10_000  # of one text; each is a change of the machine and its return
_STEPS = 20  # number of steps of a job whose faults are random
_MOST_STEPS = 100_000  # of random faults; each draws for every part of the machine
_SHARES = (0.25, 0.5, 0.75)  # shares of speed that a slow part may have left


def read_faults(words: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of faults from words, each of which is a fault or the name of a TOML file of faults.

    Raises:
        InputError: A file cannot be read or has other content, or a text is no fault.
    """
    found = [text for word in words for text in (_faults_of_file(word) if word.endswith(".toml") else [word])]
    for text in found:
        if _is_drawn(text):
            _rates(text)
        else:
            _named_faults(text)
    return tuple(found)


def _faults_of_file(name: str) -> list[str]:
    """Return the texts of the faults that a TOML file has."""
    table = load_toml(Path(name), "fault", name)
    for key in table:
        if key != "faults":
            raise unknown(f"key of {name}", key, ("faults",))
    texts = table.get("faults", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or not texts:
        raise must_be(name, "faults", 'texts, such as ["link 3-7 at step 2"]', texts)
    return texts


def faults_of(texts: Sequence[str], topology: Topology, ranks: int, steps: int, *, clock: bool = False) -> tuple[Fault, ...]:
    """Return the faults that texts describe, checked against a machine; random faults are drawn.

    Args:
        texts: The result of `read_faults`.
        topology: The whole machine.
        ranks: The number of ranks of the job.
        steps: The number of steps of the job.
        clock: Whether faults may be at times.

    Raises:
        InputError: See `check_faults` and `check_clocks`; or random faults are at times where there is no clock.
    """
    said = given_faults(texts)
    check_faults(said, topology, ranks, steps, clock=clock)
    rates = [_rates(text) for text in texts if _is_drawn(text)]
    if not clock and any("every" in each for each in rates):
        raise InputError(
            "fault: `every` of random faults must be left out, as there is no clock here; without it they are at steps"
        )
    found = (*said, *(fault for each in rates for fault in _draw_faults(each, topology, ranks, steps)))
    check_clocks(found)
    return found


def given_faults(texts: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults of the texts that describe one; texts of random faults are skipped."""
    return tuple(fault for text in texts if not _is_drawn(text) for fault in _named_faults(text))


def _named_faults(text: str) -> tuple[Fault, ...]:
    """Return the faults of one text: one fault, or one for each time that a flapping part is down.

    Raises:
        InputError: The text is neither; or a part flaps at steps, is never back, or comes and goes too often.
    """
    flaps = _FLAPS.fullmatch(text.strip())
    if flaps is None:
        return (parse_fault(text),)
    if flaps["first"].startswith("step"):
        raise InputError(
            f"fault: {text!r} must be from a time to a time such as 10s, as `flaps` is of a clock and not of steps"
        )
    moments = {"down": "flaps", "every": "every", "first": "from", "last": "to"}
    down_fs, every_fs, *_ = (parse_time(flaps[name], f"fault: {word} of {text!r}") for name, word in moments.items())
    if not every_fs:
        raise must_be("fault", f"every of {text!r}", "a time above 0", flaps["every"], "such as 2s")
    if not 0 < down_fs < every_fs:
        what = f"a time above 0 and below the {flaps['every']} from one time to the next"
        raise must_be("fault", f"how long {text!r} is down", what, flaps["down"])
    whole = parse_fault(f"{flaps['part']} from {flaps['first']} to {flaps['last']}")
    if whole.last is None or whole.part == "rank":
        raise InputError(f"fault: {text!r} must be of a link, an NPU, a NIC or a switch: a process comes back by a restart")
    begins = range(whole.first, whole.last, every_fs)
    if len(begins) > _MOST_FLAPS:
        raise must_be("fault", f"the flaps of {text!r}", f"at most {_MOST_FLAPS}", len(begins), "take a longer `every`")
    return tuple(replace(whole, first=begin, last=min(begin + down_fs, whole.last)) for begin in begins)


def at_times(texts: Sequence[str]) -> bool:
    """Return whether any text describes a fault at a virtual time, such as `at 3 s`, instead of a step."""
    drawn = [_rates(text) for text in texts if _is_drawn(text)]
    return any(fault.timed for fault in given_faults(texts)) or any("every" in rates for rates in drawn)


def job_steps(texts: Sequence[str]) -> int:
    """Return the number of steps that a job needs so that all its faults occur.

    It is one more than the last step that a fault names, or the number of steps over which random faults are drawn.
    """
    said = given_faults(texts)
    drawn = [int(_rates(text).get("steps", _STEPS)) for text in texts if _is_drawn(text)]
    return max([1, *drawn, *((fault.last or fault.first) + 1 for fault in said if not fault.timed)])


def _is_drawn(text: str) -> bool:
    """Return whether a text describes random faults."""
    return text.split()[:1] == [RANDOM]


def _rates(text: str) -> dict[str, float]:
    """Parse a text such as `random link=0.01 seed=3`, and return its numbers by name.

    Raises:
        InputError: A word is unknown or given twice, or a number is out of range.
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
    """Return the value of one setting of random faults.

    `every` is in ticks, `repair`, `steps` and `seed` are whole numbers, and the others are shares from 0 to 1.
    """
    if name == "every":
        every_fs = parse_time(value, f"fault: every of {text!r}")
        if not every_fs:
            raise must_be("fault", f"every of {text!r}", "a time above 0", value, "such as 10ms")
        return float(every_fs)
    whole = name in ("repair", "steps", "seed")
    if whole and not re.fullmatch(r"[0-9]{1,18}", value):
        raise must_be("fault", f"{name} of {text!r}", "a whole number of 0 or more", value)
    if name == "steps" and not 1 <= int(value) <= _MOST_STEPS:
        raise must_be("fault", f"steps of {text!r}", f"a whole number of 1 to {_MOST_STEPS}", value)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not whole and not 0 <= number <= 1:
        raise must_be("fault", f"{name} of {text!r}", "a share of 0 to 1", value, f"take {min(1, max(0, number)):g}")
    return number


def _draw_faults(rates: dict[str, float], topology: Topology, ranks: int, steps: int) -> Iterator[Fault]:
    """Yield random faults in the order of steps; each part without a fault fails with the rate of its kind."""
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
                    fault = _random_fault(kind, at, step, rates, draw)
                    until[kind, at] = steps if fault.last is None else fault.last
                    yield _fault_at_time(fault, rates["every"], draw.random()) if "every" in rates else fault


def _fault_at_time(fault: Fault, every_fs: float, share: float) -> Fault:
    """Return the fault of a step as a fault at a time in ticks; step 1 is the first span, from tick 0.

    Args:
        fault: The fault of a step.
        every_fs: The ticks of each span of time that counts as a step.
        share: The position of the time within its span, from 0 to 1.
    """
    first = round((fault.first - 1 + share) * every_fs)
    last = None if fault.last is None else first + round((fault.last + 1 - fault.first) * every_fs)
    return replace(fault, first=first, last=last, timed=True)


def _random_fault(kind: str, at: tuple[int, ...], step: int, rates: dict[str, float], draw: np.random.Generator) -> Fault:
    """Return a random fault of a part (a link, a NIC or a rank) that begins at a step.

    The part fails, or is slow with a share that is drawn. The fault ends with a repair if the rates have one.

    Args:
        kind: The kind of the part.
        at: The numbers of the part.
        step: The step.
        rates: The numbers of the text of random faults, by their names.
        draw: The random generator.
    """
    if kind == "rank":
        return Fault(kind, at, step)
    repair = int(rates.get("repair", 0))
    slow = draw.random() < rates.get("slow", 0.0)
    share = float(draw.choice(_SHARES)) if slow else 0.0
    return Fault(kind, at, step, step + repair - 1 if repair else None, share)
