"""The execution of algorithms on real tensors between processes, checked against the operation and a single process."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from torch import Tensor

from emu.backend.executor.executor import execute
from emu.collective.algorithm import Algorithm
from emu.collective.choice import Choice
from emu.collective.operation import operation
from emu.study.measure.move import CollectiveMove, MoveResult, RankRunner
from emu.study.prove.verify import PROCESSES, roots_of

_COUNT = 1000  # no multiple of most numbers of ranks: ragged blocks


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """The result of one algorithm that ranks in several processes executed on int64 tensors."""

    operation: str
    algorithm: str
    ranks: int
    roots: tuple[int, ...]
    wrong: int  # elements that are not what the operation says
    differ: int  # elements that are not what one process gets
    wall_s: float

    @property
    def ok(self) -> bool:
        """True if every element is right."""
        return not self.wrong and not self.differ


def verify_execution(run: RankRunner, algorithms: Iterable[Algorithm], ns: Iterable[int] = PROCESSES) -> Iterator[ExecutionRow]:
    """Execute each algorithm on the ranks of `run`; compare it with the operation and with one process.

    Raises:
        RunError: A rank failed.
    """
    found = tuple(algorithms)
    for n in ns:
        for batch in _one_an_operation(each for each in found if any(True for _ in each.shapes(n))):
            yield from _executed(run, batch, n)


def _one_an_operation(found: Iterable[Algorithm]) -> Iterator[list[Algorithm]]:
    """Yield lists of algorithms with at most one for each operation, so that one job can run each list."""
    by_operation: dict[str, list[Algorithm]] = {}
    for each in found:
        by_operation.setdefault(each.operation, []).append(each)
    for batch in zip_longest(*by_operation.values()):
        yield [each for each in batch if each is not None]


def _moved(moves: Sequence[CollectiveMove], rank: int) -> list[MoveResult]:
    """Execute the moves of a rank one after another, and return their results."""
    return [move(rank) for move in moves]


def _executed(run: RankRunner, batch: Sequence[Algorithm], n: int) -> Iterator[ExecutionRow]:
    """Run one job with several algorithms, and yield the result of each."""
    jobs = [
        (each, CollectiveMove(each.operation, n, _count(each, n), "int64", root=root, keep=True))
        for each in batch
        for root in roots_of(each.operation, n)
    ]
    by_rank = run(n, Choice({each.operation: each.name for each in batch}), partial(_moved, [what for _, what in jobs]))
    done = list(zip(jobs, zip(*by_rank, strict=True), strict=True))
    for each in batch:
        mine = [(what, moved) for (of, what), moved in done if of is each]
        wall_s = sum(max(m.wall_s for m in moved) for _, moved in mine)
        wrong = sum(m.wrong for _, moved in mine for m in moved)
        differ = sum(_differ(each, what, moved) for what, moved in mine)
        yield ExecutionRow(each.operation, each.name, n, tuple(roots_of(each.operation, n)), wrong, differ, wall_s)


def _count(found: Algorithm, n: int) -> int:
    """Return a number of elements that gives blocks of different sizes, if the operation allows that."""
    return _COUNT + -_COUNT % operation(found.operation, n).count_step


def _differ(found: Algorithm, what: CollectiveMove, moved: Sequence[MoveResult]) -> int:
    """Return the number of elements that differ from the results of a single process."""
    alone = what.payload()
    built = found.schedule(found.fit(what.n_ranks), what.root)
    execute(built, alone.operation, alone.buffers(), counts=alone.block_counts)
    outputs = [pair.output for pair in alone.buffers().values()]
    return sum(_different(m.output, output) for m, output in zip(moved, outputs, strict=True))


def _different(got: Tensor | None, expected: Tensor) -> int:
    assert got is not None
    return int((got != expected).sum())
