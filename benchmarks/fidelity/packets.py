"""Runs in a process of its own, for ns-3 keeps global state: cases as JSON on stdin, the seconds of each message on stdout."""

import json
import sys
from pathlib import Path
from typing import Any

import cppyy
from ns import ns

WINDOW_BYTES = 2**16  # a receiver's: it keeps what a connection has in queues small beside a message
DELAYED_ACKS = 8  # segments acknowledged at once, as hosts that merge what they receive do


def delivered_s(case: dict[str, Any]) -> list[float]:
    """Seconds until each message of a case has come whole."""
    ns.fidelity.Configure(DELAYED_ACKS, WINDOW_BYTES)
    run = ns.fidelity.Run(case["nodes"], case["fair"])
    for cable in case["cables"]:
        run.Cable(*cable)
    for message, late_s in zip(case["messages"], case["late"], strict=True):
        run.Add(*message, late_s)
    for wait in case["waits"]:
        run.Wait(*wait)
    return list(run.Deliver())


def main() -> None:
    """Read, run, write."""
    cppyy.cppdef(Path(__file__).with_name("packets.cc").read_text())
    json.dump([delivered_s(case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
