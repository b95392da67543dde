"""The question of `emu verify`: are collectives correct, and do they take the time that their papers claim?"""

import importlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.algorithm import algorithm as find_algorithm
from emu.collective.chooser_names import chooser_needs
from emu.collective.operation import OPERATIONS
from emu.collective.shape import Grid, Shape, show_shape
from emu.errors import InputError, RunError, must_be
from emu.registry import unknown
from emu.study.prove.verify import PROCESSES, RANKS, VerificationRow, ranks_to, shapes_of, subject
from emu.study.prove.verify import verify as verified
from launch.clusters import ClusterOptions, pool_and_cluster
from launch.front.inputs import grid_of, question, several
from launch.front.result import PICTURES, Result, lazy
from launch.show.progress import finished_items, itself, with_progress
from launch.show.text.collective_table import fault_line, proof_lines

if TYPE_CHECKING:  # it takes long to load
    from matplotlib.figure import Figure

_TOLD = 3  # algorithms whose first failure is printed in full


@dataclass(frozen=True, repr=False, eq=False)
class Verification(Result[VerificationRow], files=PICTURES):
    """The proof of each algorithm on each number of ranks, beside its claimed time."""

    cases: tuple[tuple[Algorithm, Shape], ...]  # the algorithm and the shape of each row, then those that were not proved yet
    executed: "dict[tuple[str, str, int], dict[str, object]]"  # what ran between processes; empty: nothing

    @property
    def failed(self) -> list[tuple[VerificationRow, Algorithm, Shape]]:
        """The rows that fail, those with wrong results before those whose claim is not kept."""
        found = [(row, *case) for row, case in zip(self.rows, self.cases, strict=False) if row.failed]
        return sorted(found, key=lambda failure: not failure[0].refused)

    @property
    def failure(self) -> str | None:
        """A text with the number of failed rows, and the reason of the first; None: all is proved."""
        if not self.failed:
            return None
        row, _, shape = self.failed[0]
        return f"verify: {len(self.failed)} of {len(self.rows)} fail; {_case_text(row, shape)}: {_reason(row, shape)}"

    def text(self) -> str:
        """Return a line for each algorithm, and the first failure of each of the first three algorithms that fail, in full."""
        first: dict[str, str] = {}
        for row, found, shape in self.failed:
            first.setdefault(found.key, _failure_text(row, found, shape))
        ran = f"{len(self.executed)} executed between processes: every element right, as in one process"
        return "\n".join([*proof_lines(self.rows), *(f"\n{told}" for told in [*first.values()][:_TOLD])]) + (
            f"\n\n{ran}" if self.executed else ""
        )

    def as_json(self) -> object:
        """Return the rows, and those of the runs between processes, as objects that become JSON."""
        return self.records()

    def records(self) -> Sequence[object]:
        """Return the rows, and those of the runs between processes."""
        return [asdict(row) | self.executed.get((row.operation, row.algorithm, row.ranks), {}) for row in self.rows]

    def save_picture(self, path: Path) -> None:
        """Draw the round in which the first failure is; if no round fails, log that and write nothing."""
        try:
            super().save_picture(path)
        except InputError as none:
            logging.getLogger("emu").info(str(none))

    def figure(self) -> "Figure":
        """Return the picture of the round of the first failure.

        Raises:
            InputError: nothing fails, or no round of it is known.
        """
        for row, found, shape in self.failed:
            if row.fault is not None and row.fault.round >= 0:
                title = f"{_case_text(row, shape)}\n{_reason(row, shape)}"
                schedule, *_ = subject(found, shape, _root(row))
                drawn: Figure = lazy("chart.algorithm_chart:round_figure")(schedule, title, row.fault)
                return drawn
        if self.failed and not any(row.refused for row, *_ in self.failed):
            raise InputError("verify: all proofs hold and only claims differ, so that there is no round to draw")
        raise InputError("verify: no round fails, so that there is no picture")


@question
def verify(
    operation: str | None = None,
    *,
    algorithm: str | None = None,
    ranks: int | Sequence[int] = (),
    max_ranks: int | None = None,
    dims: str | Grid = "",
    among: Sequence[Algorithm] | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    workers: str = "local",
) -> Verification:
    """Prove that collectives are correct, and compare their times with the claims of their papers.

    With `cluster="ray"`, collectives are also executed on real tensors between processes.

    Args:
        operation: The operation, such as `all_reduce`; None: all.
        algorithm: Prove only this algorithm of the operation.
        ranks: The number of ranks, or several; empty: 1 to 17, 31, 32 and 64.
        max_ranks: The largest number of ranks: the default numbers and 128, 256, ... up to it.
        dims: The shape of the grid, for an algorithm on a grid, such as `4x4`. 4x4:0-7 takes its ranks 0 to 7; empty:
            every shape.
        among: Prove only algorithms of these; None: of all that are filed.
        cluster: Where ranks run: as threads (local), or in Ray actors (ray).
        ray_address: The address of a running Ray; None: start one on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings: strategy, resources, wait_s, runtime_env.
        workers: The processes that prove: this one (`local`), or those of a Ray (`ray`), which `ray_address` may name, too.

    Raises:
        InputError: a name is unknown, or an algorithm has no schedule on any of these numbers of ranks.
        RunError: an element that was executed between processes is wrong.
    """
    pool, where = pool_and_cluster("emu verify", workers, cluster, ray_address, ranks_per_actor, ray_options)
    chosen = _algorithms(operation, algorithm, among)
    ns, grid = _ranks(several(ranks), max_ranks, PROCESSES if cluster == "ray" else RANKS), grid_of(dims)
    if grid and (several(ranks) or max_ranks is not None or cluster == "ray"):
        raise must_be("verify", "--dims", "given without --ranks, --max-ranks and --cluster ray", show_shape(grid))
    cases = _on_grid(chosen, grid) if grid else shapes_of(chosen, ns, each=not several(ranks))
    if not cases:
        chosen[0].fit(ns[0])  # raises an error that lists valid numbers of ranks
    done = finished_items(verified(cases, pool), lambda proved: Verification(proved, tuple(cases), {}).text(), len(cases))
    rows = tuple(with_progress(done, "verify", len(cases), row=None if where.cluster == "ray" else itself))
    return Verification(rows, tuple(cases), _execute(chosen, ns, where))


def _on_grid(chosen: list[Algorithm], grid: Grid) -> list[tuple[Algorithm, Shape]]:
    """Return those of the chosen algorithms that accept a grid, each with the grid as its shape.

    Raises:
        InputError: there is none.
    """
    taking: list[tuple[Algorithm, Shape]] = [(found, grid) for found in chosen if found.takes(grid)]
    if not taking:
        chosen[0].check(grid)  # raises an error that names a shape that works
    return taking


def _failure_text(row: VerificationRow, found: Algorithm, shape: Shape) -> str:
    """Return a text on a failed row: why it failed, and the messages of the round in which it did."""
    said = f"{_case_text(row, shape)}: {_reason(row, shape)}"
    if row.fault is None or row.fault.round < 0:
        return said
    return f"{said}\n{fault_line(subject(found, shape, _root(row))[0], row.fault)}"


def _case_text(row: VerificationRow, shape: Shape) -> str:
    """Return a phrase on an operation, algorithm and shape, such as `all_reduce ring on 8 ranks`."""
    root = f", root {_root(row)}" if _root(row) else ""
    return f"{row.operation} {row.algorithm} on {show_shape(shape)} ranks{root}"


def _reason(row: VerificationRow, shape: Shape) -> str:
    """Return the reason for which an algorithm failed on a shape, as text."""
    reason = row.proof if row.proof != "ok" else row.claim
    return reason.removeprefix(f"{row.operation} {row.algorithm} on {show_shape(shape)} ranks: ")


def _root(row: VerificationRow) -> int:
    """Return the root of the failed proof; 0 if the operation has no root."""
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


def _algorithms(operation: str | None, name: str | None, among: Sequence[Algorithm] | None) -> list[Algorithm]:
    """Return the algorithms that the arguments name.

    Raises:
        InputError: the operation or the algorithm is unknown, or there is none.
    """
    if operation is None:
        if name is not None:
            raise must_be(
                "verify", "--algorithm", "given with an operation", name, "e.g. emu verify all_reduce --algorithm ring"
            )
    elif operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    elif name is not None and chooser_needs(name).makes:
        mend = f"`emu synthesize {operation} --topology T` makes a schedule for a topology and proves it"
        raise must_be("verify", "--algorithm", "an algorithm of the catalogue", name, mend)
    elif name:
        return [find_algorithm(operation, name)]
    found: Iterable[Any] = (each for _, each in ALGORITHMS) if among is None else among
    tried = [each for each in found if operation in (None, each.operation)]
    if not tried:
        what = f"collective for {operation}" if operation else "collective"
        raise InputError(f"verify: the files of --import hold no {what}; file one with @collective, or leave --import out")
    return tried
