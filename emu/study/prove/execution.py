"""Does every algorithm do its operation on real tensors, between processes as in one?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from torch import Tensor

from emu.backend.executor.executor import execute
from emu.collective.algorithm import Algorithm, Choice
from emu.collective.operation import operation
from emu.study.measure.move import Move, Moved, Run
from emu.study.prove.proving import roots_of
from emu.study.prove.verify import PROCESSES

_COUNT = 1000  # no multiple of most numbers of ranks: ragged blocks


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of one algorithm on real int64 tensors among ranks that are processes."""

    operation: str
    algorithm: str
    ranks: int
    roots: tuple[int, ...]
    wrong: int  # elements that are not what the operation says
    differ: int  # elements that are not what one process gets
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether every element is right."""
        return not self.wrong and not self.differ


def verify_moves(run: Run, algorithms: Iterable[Algorithm], ns: Iterable[int] = PROCESSES) -> Iterator[Executed]:
    """Execute each algorithm on ranks that `run` runs; hold it against the operation and against one process.

    Raises:
        RunError: a rank failed.
    """
    found = tuple(algorithms)
    for n in ns:
        for batch in _one_an_operation(each for each in found if any(True for _ in each.shapes(n))):
            yield from _executed(run, batch, n)


def _one_an_operation(found: Iterable[Algorithm]) -> Iterator[list[Algorithm]]:
    """Algorithms that one job can run, as a choice names one for each operation."""
    by_operation: dict[str, list[Algorithm]] = {}
    for each in found:
        by_operation.setdefault(each.operation, []).append(each)
    for batch in zip_longest(*by_operation.values()):
        yield [each for each in batch if each is not None]


@dataclass(frozen=True, slots=True)
class _Several:
    """Moves one after another; call it with a rank."""

    moves: tuple[Move, ...]

    def __call__(self, rank: int) -> list[Moved]:
        return [move(rank) for move in self.moves]


def _executed(run: Run, batch: Sequence[Algorithm], n: int) -> Iterator[Executed]:
    jobs = [
        (each, Move(each.operation, n, _count(each, n), "int64", root=root, keep=True))
        for each in batch
        for root in _roots(each, n)
    ]
    by_rank = run(n, Choice({each.operation: each.name for each in batch}), _Several(tuple(what for _, what in jobs)))
    done = list(zip(jobs, zip(*by_rank, strict=True), strict=True))
    for each in batch:
        mine = [(what, moved) for (of, what), moved in done if of is each]
        wall_s = sum(max(m.wall_s for m in moved) for _, moved in mine)
        wrong = sum(m.wrong for _, moved in mine for m in moved)
        differ = sum(_differ(each, what, moved) for what, moved in mine)
        yield Executed(each.operation, each.name, n, _roots(each, n), wrong, differ, wall_s)


def _count(found: Algorithm, n: int) -> int:
    """Ragged blocks, where the operation can have them."""
    return _COUNT + -_COUNT % operation(found.operation, n).count_step


def _roots(found: Algorithm, n: int) -> tuple[int, ...]:
    return tuple(roots_of(found.operation, n))


def _differ(found: Algorithm, what: Move, moved: Sequence[Moved]) -> int:
    """Elements that are not what one process gets."""
    alone = what.payload()
    built = found.schedule(found.fit(what.n_ranks), what.root)
    execute(built, alone.operation, alone.buffers(), counts=alone.block_counts)
    outputs = [pair.output for pair in alone.buffers().values()]
    return sum(_different(m.output, output) for m, output in zip(moved, outputs, strict=True))


def _different(got: Tensor | None, expected: Tensor) -> int:
    assert got is not None
    return int((got != expected).sum())
