"""Compare what a program did in two places: the parameters after each optimizer step, and what was printed."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Lines that differ between two runs in one place: times, rates, memory, process numbers, addresses, folders.
_NOISE = re.compile(
    r"\btime|\bms\b|\bsec|\bs/|/s\b|/sec|\bdt\b|took|elapsed|duration|memory|\bmem\b|\bMB\b|\bMiB\b|\bGB\b|GiB|Gbps|GBps|"
    r"mfu|throughput|latency|\bpid\b|0x[0-9a-f]+|tmp|/record-|\bport\b|backend|date|\d\d:\d\d:\d\d|tok/s|flops",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far two runs agree.

    Args:
        steps: Optimizer steps of all ranks, in the first run.
        same_steps: Those whose parameters have the same bits in the second.
        apart: The largest relative difference of a parameter's norm, after any step.
        lines: Printed lines of all ranks in the first run without those that differ from run to run.
        same_lines: Those that the second run prints in the same place.
        fault: What keeps the runs from being compared; empty: nothing.
    """

    steps: int
    same_steps: int
    apart: float
    lines: int
    same_lines: int
    fault: str = ""

    @property
    def equal(self) -> bool:
        """Return whether all is the same to the bit."""
        return not self.fault and self.steps == self.same_steps and self.lines == self.same_lines

    def __str__(self) -> str:
        if self.fault:
            return self.fault
        told = [f"{self.same_steps} of {self.steps} steps to the bit"] * bool(self.steps)
        told += [f"norms within {self.apart:.1e}"] * (self.same_steps != self.steps)
        told += [f"{self.same_lines} of {self.lines} lines"] * bool(self.lines)
        return ", ".join(told) or "it prints times only"


def compare(gloo: Path, threads: Path, ranks: int, noise: str = "") -> Likeness:
    """Return how far the records of a program's two runs agree."""
    pattern = re.compile(noise) if noise else None
    parent = set(_texts(_read(gloo / "parent.jsonl"), pattern))
    steps = same = lines = same_lines = 0
    apart = 0.0
    for rank in range(ranks):
        ours, theirs = _read(threads / f"{rank}.jsonl"), _read(gloo / f"{rank}.jsonl")
        first, second = _steps(theirs), _steps(ours)
        if len(first) != len(second):
            return Likeness(len(first), 0, 0.0, 0, 0, f"rank {rank} took {len(second)} steps, on gloo {len(first)}")
        steps += len(first)
        same += sum(a["bits"] == b["bits"] for a, b in zip(first, second, strict=True))
        apart = max([apart, *(_apart(a["norms"], b["norms"]) for a, b in zip(first, second, strict=True))])
        told = list(_texts(theirs, pattern))
        found = [text for text in _texts(ours, pattern) if text not in parent or text in told]
        lines += max(len(told), len(found))
        same_lines += sum(a == b for a, b in zip(told, found, strict=False))
    return Likeness(steps, same, apart, lines, same_lines)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def _steps(record: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in record if each["kind"] == "step"]


def _texts(record: Iterable[dict[str, Any]], noise: re.Pattern[str] | None) -> Iterable[str]:
    for each in record:
        if each["kind"] == "print":
            for text in str(each["text"]).splitlines():
                if text.strip() and not _NOISE.search(text) and not (noise and noise.search(text)):
                    yield text


def _apart(a: Sequence[float], b: Sequence[float]) -> float:
    if len(a) != len(b):
        return float("inf")
    return max((abs(x - y) / max(abs(x), abs(y), 1e-30) for x, y in zip(a, b, strict=True) if x != y), default=0.0)
