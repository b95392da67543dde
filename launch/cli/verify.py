"""`emu verify`: is every collective what it says it is?"""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby

import click

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.operation import OPERATIONS
from emu.errors import RunError, must_be
from emu.registry import unknown
from emu.study.execution import RANKS as PROCESSES
from emu.study.execution import Executed, verify_moves
from emu.study.verify import RANKS, Verified, shapes_of, verify
from launch.cli.options import cluster_options, import_option, json_option, print_json
from launch.clusters import check_cluster, opened
from launch.show.progress import tracked
from launch.show.table import table


@click.command("verify")
@click.argument("operation", required=False)
@click.option("--algorithm", "name", metavar="NAME", help="Only this one of the operation.")
@click.option("--ranks", multiple=True, type=int, help="Among how many; may be repeated. [default: 1..17, 31, 32, 64]")
@cluster_options
@import_option
@json_option
def verify_command(
    operation: str | None,
    name: str | None,
    ranks: tuple[int, ...],
    cluster: str,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Prove that collectives do what they say, and hold them to the time that their papers claim.

    With --cluster ray they are also executed on real tensors between processes (2, 3 and 4 ranks unless given).

    \b
    emu verify
    emu verify all_reduce --algorithm ring --ranks 256
    """
    check_cluster(cluster, ray_address)
    chosen, ns = _chosen(operation, name), ranks or (RANKS if cluster == "local" else PROCESSES)
    for n in ns:
        if n < 1:
            raise must_be("verify", "--ranks", "1 or more", n)
    cases = shapes_of(chosen, ns)
    if not cases:
        chosen[0].fit(ns[0])  # says which numbers of ranks work
    rows = list(tracked(verify(cases), "verify", len(cases)))
    moved = _moved(chosen, ns, cluster, ray_address)
    if as_json:
        print_json([asdict(row) | moved.get(_key(row), {}) for row in rows])
    else:
        between = f"\n\n{len(moved)} executed between processes: every element right, as in one process" if moved else ""
        click.echo(_table(rows) + between)
    failed = [row for row in rows if not row.ok]
    if failed:
        first = failed[0]
        story = first.proof if first.proof != "ok" else first.claim
        raise RunError(
            f"verify: {len(failed)} of {len(cases)} fail; {first.operation} {first.algorithm} on {first.ranks}: {story}"
        )


def _key(row: Verified | Executed) -> tuple[str, str, int]:
    return row.operation, row.algorithm, row.ranks


def _moved(
    chosen: list[Algorithm], ns: tuple[int, ...], cluster: str, ray_address: str | None
) -> dict[tuple[str, str, int], dict[str, object]]:
    """What came of executing each between processes, by algorithm and ranks; nothing where ranks are threads.

    Raises:
        RunError: an element came out wrong.
    """
    if cluster == "local":
        return {}
    with opened(cluster, ray_address) as ranks:
        found = list(tracked(verify_moves(ranks.run, chosen, ns), "execute", len(chosen) * len(ns)))
    for bad in (each for each in found if not each.ok):
        what = f"{bad.operation} {bad.algorithm} on {bad.ranks} processes"
        raise RunError(f"verify: {what}: {bad.wrong} elements are wrong, {bad.differ} differ from one process's")
    return {_key(e): {"wrong": e.wrong, "differ": e.differ, "wall_execute_s": e.wall_s} for e in found}


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
        proof = f"ok, exact sums on {len(found)} shapes" if bad is None else f"FAILS on {bad.ranks} ranks"
        equal = sum(row.claim == "equal" for row in found)
        claim = "equal" if equal == len(found) else f"equal on {equal}, below on {len(found) - equal}"
        cells.append((operation, name, proof, claim if bad is None else "", f"{sum(row.wall_s for row in found):.2f}"))
    return table(("operation", "algorithm", "proof", "claimed time", "wall (s)"), cells)
