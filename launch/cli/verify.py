"""`emu verify`: is every collective what it says it is?"""

from collections.abc import Iterable
from itertools import groupby

import click

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.operation import OPERATIONS
from emu.errors import RunError, must_be
from emu.registry import unknown
from emu.study.verify import RANKS, Verified, verify
from launch.cli.options import json_option, print_json
from launch.show.progress import tracked
from launch.show.table import table


@click.command("verify")
@click.argument("operation", required=False)
@click.option("--algorithm", "name", metavar="NAME", help="Only this one of the operation.")
@click.option("--ranks", multiple=True, type=int, help="Among how many; may be repeated. [default: 1..17, 32, 64]")
@json_option
def verify_command(operation: str | None, name: str | None, ranks: tuple[int, ...], as_json: bool) -> None:
    """Prove that collectives do what they say, and hold them to the time that their papers claim.

    \b
    emu verify
    emu verify all_reduce --algorithm ring --ranks 256
    """
    chosen, ns = _chosen(operation, name), ranks or RANKS
    for n in ns:
        if n < 1:
            raise must_be("verify", "--ranks", "1 or more", n)
    total = len(chosen) * len(ns)
    rows = list(tracked(verify(chosen, ns), "verify", total))
    if as_json:
        print_json(rows)
    else:
        click.echo(_table(rows))
    failed = [row for row in rows if not row.ok]
    if failed:
        first = failed[0]
        story = first.proof if first.proof != "ok" else first.claim
        raise RunError(f"verify: {len(failed)} of {total} fail; {first.operation} {first.algorithm} on {first.ranks}: {story}")


def _chosen(operation: str | None, name: str | None) -> list[Algorithm]:
    if operation is None:
        if name is not None:
            raise must_be(
                "verify", "--algorithm", "given with an operation", name, "e.g. emu verify all_reduce --algorithm ring"
            )
        return [each for _, each in ALGORITHMS]
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    return [algorithm(operation, name)] if name else [a for _, a in ALGORITHMS if a.operation == operation]


def _table(rows: Iterable[Verified]) -> str:
    """A line an algorithm: what was proved, among which numbers of ranks, and how long it took."""
    cells = []
    for (operation, name), group in groupby(rows, key=lambda row: (row.operation, row.algorithm)):
        found = list(group)
        bad = next((row for row in found if not row.ok), None)
        proof = f"ok, exact sums on {len(found)} sizes" if bad is None else f"FAILS on {bad.ranks} ranks"
        equal = sum(row.claim == "equal" for row in found)
        claim = "equal" if equal == len(found) else f"equal on {equal}, below on {len(found) - equal}"
        cells.append((operation, name, proof, claim if bad is None else "", f"{sum(row.wall_s for row in found):.2f}"))
    return table(("operation", "algorithm", "proof", "claimed time", "wall (s)"), cells)
