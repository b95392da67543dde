"""PyTorch's own tests of distributed training on emulated ranks, beside gloo in the same run: python -m benchmarks.conformance.

Exit code 1 if a test that gloo passes neither passes nor is named in `LEFT_OUT`, or if one passed without all its ranks.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.conformance.suite import N

PLACES = ("gloo", "processes", "threads")
_TIMEOUTS = "a rank that never comes is named at once, not after a time"
_PROFILES = "a profile of one rank is looked at, and the ranks share a process"
_BOTH = {
    "test_barrier_timeout_full_group": _TIMEOUTS,
    "test_get_backend": "the backend must be called gloo",
    "test_monitored_barrier_gloo": _TIMEOUTS,
    "test_monitored_barrier_gloo_rank_0_timeout": _TIMEOUTS,
    "test_monitored_barrier_gloo_subgroup": _TIMEOUTS,
}
_THREADS = {
    "test_get_rank": "processes are counted, and the ranks share one",
    "test_isend_torch_profiler": _PROFILES,
    "test_send_recv_any_source_torch_profiler": _PROFILES,
    "test_send_recv_torch_profiler": _PROFILES,
    "test_send_recv_with_tag_torch_profiler": _PROFILES,
}
LEFT_OUT: Mapping[str, Mapping[str, str]] = {"processes": _BOTH, "threads": _BOTH | _THREADS}
Ended = Mapping[str, Mapping[str, Any]]


def run(place: str, log: Path) -> Ended:
    """Run the tests in one place; return how each of them ended."""
    with tempfile.TemporaryDirectory() as folder, log.open("w") as said:
        out = Path(folder) / "ended.json"
        command = [sys.executable, "-m", "benchmarks.conformance.suite", place, str(out)]
        subprocess.run(command, check=True, stdout=said, stderr=said)
        ended: Ended = json.loads(out.read_text())
        return ended


def passed(ended: Ended) -> set[str]:
    """The tests that passed with every rank started."""
    return {name for name, how in ended.items() if how["how"] == "passed" and how["started"] == N}


def faults(place: str, ended: Ended, gloo: Ended) -> list[str]:
    """Return what is wrong with the run of a place, a line each."""
    left_out = LEFT_OUT[place]
    failed = [name for name, how in ended.items() if how["how"] == "failed" and name not in left_out]
    idle = [name for name, how in ended.items() if how["how"] == "passed" and how["started"] != N]
    missing = sorted(passed(gloo) - passed(ended) - left_out.keys() - set(failed) - set(idle))
    needless = sorted(passed(ended) & left_out.keys())
    return [
        *(f"{place}: {name} failed" for name in failed),
        *(f"{place}: {name} passed, and {ended[name]['started']} of {N} ranks ran" for name in idle),
        *(f"{place}: {name} did not run, and is not named as left out: {ended[name]['why'][:80]}" for name in missing),
        *(f"{place}: {name} is named as left out, and passes" for name in needless),
    ]


def main() -> int:
    """Run all, print how many passed; the exit code."""
    found = {}
    for place in PLACES:
        log = Path(tempfile.gettempdir()) / f"conformance-{place}.log"
        found[place] = run(place, log)
        print(f"{place}: {len(passed(found[place]))} passed with {N} ranks each; log: {log}", flush=True)  # noqa: T201
    wrong = []
    for place in PLACES[1:]:
        told = faults(place, found[place], found["gloo"])
        wrong += told
        left = LEFT_OUT[place]
        print(  # noqa: T201
            f"{place}: {len(passed(found[place]))} passed, {len(told)} failed, {len(left)} left out, "
            f"beside gloo's {len(passed(found['gloo']))}",
            *(f"  {name}: {why}" for name, why in sorted(left.items())),
            sep="\n",
        )
    print(*wrong, sep="\n")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
