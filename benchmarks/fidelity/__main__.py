"""Emu against physics that no one here wrote: `make fidelity`, or `python -m benchmarks.fidelity [PART ...]`.

One line a comparison; exit code 1 if one lies outside its bound.
"""

import sys
from collections.abc import Callable, Iterator

from benchmarks.fidelity import graphs, kernel, nccl, rates, traffic
from benchmarks.fidelity.row import Row, show
from emu.errors import EmuError

PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "kernel": kernel.rows,
    "ns3": traffic.rows,
    "rates": rates.rows,
    "graphs": graphs.rows,
    "nccl": nccl.rows,
}


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - PARTS.keys():
        sys.exit(f"fidelity: a part must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    try:
        rows = [row for part in wanted for row in PARTS[part]()]
    except EmuError as error:
        sys.exit(str(error))
    sys.stdout.write(show(rows) + "\n")
    sys.exit(any(row.failed for row in rows))


if __name__ == "__main__":
    main()
