"""How many damaged schedules the proof refuses: `python -m benchmarks.mutants [MUTANTS_PER_ALGORITHM]`.

Each algorithm of the catalogue on its shapes of 2 to 8 ranks, against a row-by-row reading on random integers. Exits with 1
if one that gives a wrong result passes.
"""

import sys
from collections import Counter, defaultdict

from emu.collective.algorithm import ALGORITHMS
from tests.collectives.mutants import Outcome, battery

_COLUMNS = ("mutants", "wrong", "by proof", "by integers", "passed", "harmless", "of them refused")


def counts(tried: list[Outcome]) -> tuple[int, ...]:
    """The columns of one line: of the wrong ones how many were refused and passed, of the harmless how many were refused."""
    wrong = [mutant for mutant in tried if mutant.wrong]
    harmless = [mutant for mutant in tried if not mutant.wrong]
    return (
        len(tried),
        len(wrong),
        sum(bool(mutant.proof) for mutant in wrong),
        sum(bool(mutant.integers) for mutant in wrong),
        sum(not mutant.refused for mutant in wrong),
        len(harmless),
        sum(mutant.refused for mutant in harmless),
    )


def main() -> int:
    """Print one line a kind of damage, then why harmless mutants were refused."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    tried = [mutant for _, found in ALGORITHMS for mutant in battery(found, times)]
    by_fault = defaultdict(list)
    for mutant in tried:
        by_fault[mutant.fault].append(mutant)
    sys.stdout.write(f"{'damage':28}{''.join(f'{name:>17}' for name in _COLUMNS)}\n")
    for fault, mutants in (*sorted(by_fault.items()), ("all", tried)):
        sys.stdout.write(f"{fault:28}{''.join(f'{count:17,}' for count in counts(mutants))}\n")
    why = Counter(mutant.reason for mutant in tried if mutant.refused and not mutant.wrong)
    reasons = ", ".join(f"{count:,} '{reason}'" for reason, count in why.most_common())
    sys.stdout.write(f"harmless and refused: {reasons}\n")
    return int(any(mutant.wrong and not mutant.refused for mutant in tried))


if __name__ == "__main__":
    sys.exit(main())
