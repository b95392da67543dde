"""The command `emu verify`: proofs that collectives are correct."""

import importlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.operation import OPERATIONS
from emu.collective.shape import Shape, show_shape
from emu.errors import InputError, RunError, must_be
from emu.registry import unknown
from emu.study.prove.verify import PROCESSES, RANKS, VerificationRow, ranks_to, shapes_of, subject, verify
from launch.cli.options.common import import_option, imported_algorithms, json_option, print_json
from launch.cli.options.files import OutputFile, print_text, write_png
from launch.clusters import ClusterOptions, cluster_options
from launch.show.progress import with_progress
from launch.show.text.proof_table import fault_line, proof_lines

Failure = tuple[VerificationRow, Algorithm, Shape]
_TOLD = 3  # algorithms whose first failure is printed in full


@click.command("verify")
@click.argument("operation", required=False)
@click.option("--algorithm", "name", metavar="NAME", help="Prove only this algorithm of the operation.")
@click.option(
    "--ranks", multiple=True, type=int, help="The number of ranks; repeat it for several. [default: 1..17, 31, 32, 64]"
)
@click.option("--max-ranks", type=int, help="The largest number of ranks: the default numbers and 128, 256, ... up to it.")
@click.option("--png", type=OutputFile(".png"), help="Draw the round of the first failure to this file.")
@cluster_options
@import_option
@json_option
def verify_command(
    operation: str | None,
    name: str | None,
    ranks: tuple[int, ...],
    max_ranks: int | None,
    png: Path | None,
    where: ClusterOptions,
    as_json: bool,
) -> None:
    """Prove that collectives are correct, and compare their times with the claims of their papers.

    With --import, only the collectives of these files are proved. An algorithm on a grid is proved on every shape up to
    64 ranks, and above that on the best shape of each number of dimensions. A schedule with more than 2**24 rows is proved
    from the symmetry that it declares; if it declares none, the table says that it was not run.

    With --cluster ray, collectives are also executed on real tensors between processes (by default among 2, 3 and 4 ranks).

    \b
    emu verify
    emu verify all_reduce --algorithm ring --ranks 256
    emu verify --max-ranks 1024
    emu verify --import my_ring.py
    """
    chosen, ns = _algorithms(operation, name), _ranks(ranks, max_ranks, PROCESSES if where.cluster == "ray" else RANKS)
    cases = shapes_of(chosen, ns, each=not ranks)
    if not cases:
        chosen[0].fit(ns[0])  # raises an error that lists valid numbers of ranks
    rows = list(with_progress(verify(cases), "verify", len(cases)))
    moved = _execute(chosen, ns, where)
    failed = [(row, *case) for row, case in zip(rows, cases, strict=True) if row.failed]
    failed.sort(key=lambda failure: failure[0].fault is None)  # wrong results come before slow ones
    if as_json:
        print_json([asdict(row) | moved.get((row.operation, row.algorithm, row.ranks), {}) for row in rows])
    else:
        print_text("\n".join(proof_lines(rows)))
        print_text("".join(f"\n{_failure_text(*each)}" for each in _first_failures(failed)), nl=False)
        if moved:
            print_text(f"\n{len(moved)} executed between processes: every element right, as in one process")
    if failed:
        _refuse(failed, len(cases), png)


def _refuse(failed: list[Failure], tried: int, png: Path | None) -> None:
    """Raise an error that names the first failure; draw its round before, if that is known.

    Args:
        failed: All failures.
        tried: The number of all cases.
        png: The file of the picture; None: no picture.

    Raises:
        RunError: always.
    """
    faults = ((*each, each[0].fault) for each in failed if png is not None)
    for row, found, shape, fault in faults:
        if fault is not None and fault.round >= 0:
            title = f"{_case_text(row, shape)}\n{_reason(row, shape)}"
            schedule, *_ = subject(found, shape, _root(row))
            write_png(png, "chart.algorithm_chart:round_figure", schedule, title, fault.round)
            break
    row, _, shape = failed[0]
    raise RunError(f"verify: {len(failed)} of {tried} fail; {_case_text(row, shape)}: {_reason(row, shape)}")


def _first_failures(failed: Iterable[Failure]) -> list[Failure]:
    """Return the first failure of each of the first three algorithms that fail."""
    first: dict[str, Failure] = {}
    for failure in failed:
        first.setdefault(failure[1].key, failure)
    return list(first.values())[:_TOLD]


def _failure_text(row: VerificationRow, found: Algorithm, shape: Shape) -> str:
    """Return what went wrong, and the round in which it did."""
    said = f"{_case_text(row, shape)}: {_reason(row, shape)}\n"
    if row.fault is None or row.fault.round < 0:
        return said
    return said + fault_line(subject(found, shape, _root(row))[0], row.fault) + "\n"


def _case_text(row: VerificationRow, shape: Shape) -> str:
    """Return operation, algorithm and shape in words, such as `all_reduce ring on 8 ranks`."""
    root = f", root {_root(row)}" if _root(row) else ""
    return f"{row.operation} {row.algorithm} on {show_shape(shape)} ranks{root}"


def _reason(row: VerificationRow, shape: Shape) -> str:
    """Return why the case failed."""
    reason = row.proof if row.proof != "ok" else row.claim
    return reason.removeprefix(f"{row.operation} {row.algorithm} on {show_shape(shape)} ranks: ")


def _root(row: VerificationRow) -> int:
    """Return the root of the proof that failed; 0 where the operation has no root."""
    return row.roots[-1] if row.roots else 0


def _ranks(ranks: tuple[int, ...], most: int | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of ranks that are proved.

    Raises:
        InputError: a number is below 1, or both options are given.
    """
    for word, numbers in (("--ranks", ranks), ("--max-ranks", () if most is None else (most,))):
        for n in numbers:
            if n < 1:
                raise must_be("verify", word, "1 or more", n)
    if most is not None and ranks:
        raise must_be("verify", "--max-ranks", "given without --ranks", most, "give one of the two")
    return ranks_to(most) if most is not None else ranks or default


def _execute(
    chosen: list[Algorithm], ns: tuple[int, ...], where: ClusterOptions
) -> dict[tuple[str, str, int], dict[str, object]]:
    """Execute each collective between processes, and return the results by operation, algorithm and ranks.

    There are no results where ranks are threads.

    Raises:
        RunError: an element is wrong.
    """
    if where.cluster == "local":
        return {}
    execution = importlib.import_module("emu.study.prove.execution")  # not above: it loads torch
    with where.open_cluster() as ranks:
        found = list(with_progress(execution.verify_execution(ranks.run, chosen, ns), "execute", len(chosen) * len(ns)))
    for bad in (each for each in found if not each.ok):
        what = f"{bad.operation} {bad.algorithm} on {bad.ranks} processes"
        raise RunError(f"verify: {what}: {bad.wrong} elements are wrong, {bad.differ} differ from one process's")
    return {
        (e.operation, e.algorithm, e.ranks): {"wrong": e.wrong, "differ": e.differ, "wall_execute_s": e.wall_s} for e in found
    }


def _algorithms(operation: str | None, name: str | None) -> list[Algorithm]:
    """Return the algorithms that the arguments name.

    Raises:
        InputError: the operation or the algorithm is unknown.
    """
    if operation is None:
        if name is not None:
            raise must_be(
                "verify", "--algorithm", "given with an operation", name, "e.g. emu verify all_reduce --algorithm ring"
            )
        return _available()
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    return [algorithm(operation, name)] if name else _available(operation)


def _available(operation: str | None = None) -> list[Algorithm]:
    """Return the algorithms of the imported files, else all, for one operation or for every one.

    Raises:
        InputError: the files hold none.
    """
    own = imported_algorithms()
    found = [each for _, each in ALGORITHMS] if own is None else own
    tried = [each for each in found if operation in (None, each.operation)]
    if not tried:
        what = f"collective for {operation}" if operation else "collective"
        raise InputError(f"verify: the files of --import hold no {what}; file one with @collective, or leave --import out")
    return tried
