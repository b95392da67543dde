"""Schedules that are synthesised where a choice asks for them: each is an algorithm for one place, known by its digest."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from emu.arrays import digest
from emu.collective.algorithm import Algorithm, keep_made
from emu.collective.choice import AlgorithmOnDims, operation_of
from emu.collective.chooser_names import SYNTHESIZED
from emu.collective.operation import ROOTED, Operation, operation
from emu.collective.schedule import Schedule
from emu.collective.shape import Shape
from emu.collective.transform import rotate
from emu.errors import InputError, must_be
from emu.study.choice.fastest import end_fs, fastest
from emu.study.choice.site import Requirement, Site
from emu.study.synthesize import kept_schedule
from emu.synthesis.variants import SYNTHESIS_OPERATIONS

_DIGITS = 12  # of a digest


@dataclass(frozen=True, slots=True)
class MadeSchedule:
    """The builder of a schedule that is synthesised for one requirement at a site."""

    site: Site
    op: Operation
    wanted: Requirement

    def __call__(self, shape: Shape) -> Schedule:
        """Return the schedule; that of an operation with a root is turned so that rank 0 is its root."""
        made, _ = kept_schedule(self.site, self.op, self.wanted.elements, self.wanted.item_bytes)
        if self.op.name not in ROOTED:
            return made
        return rotate(made, (self.op.n_ranks - self.op.root) % self.op.n_ranks, slots_are_ranks=False)

    def shapes(self, n: int) -> Iterator[Shape]:
        """Yield the number of ranks for which the schedule is made, if it is n."""
        if n == self.op.n_ranks:
            yield n


def check_made(words: Iterable[str]) -> None:
    """Check that words such as `all_gather` or `dp.all_gather` name operations for which schedules are made.

    Raises:
        InputError: One of them does not.
    """
    for word in words:
        if operation_of(word) not in SYNTHESIS_OPERATIONS:
            what = f"one of {', '.join(SYNTHESIS_OPERATIONS)}"
            raise must_be("--algorithm", "a synthesised operation", what, operation_of(word))


def made_algorithm(site: Site, wanted: Requirement) -> AlgorithmOnDims | None:
    """Return the algorithm that is synthesised for a requirement at a site; None if its operation needs none or has none.

    Raises:
        InputError: As `kept_schedule`.
    """
    if wanted.operation not in SYNTHESIS_OPERATIONS or len(site.npus) < 2 or not wanted.elements:
        return None
    op, wanted = operation(wanted.operation, len(site.npus), wanted.root), wanted._replace(groups=1)
    name = f"{SYNTHESIZED}-{digest((site.topology.digest(), site.npus, *wanted))[:_DIGITS]}"
    build = MadeSchedule(site, op, wanted)
    build(op.n_ranks)
    keep_made(Algorithm(op.name, name, build, None, "Send as was synthesised for one place.", build.shapes))
    return AlgorithmOnDims(name)


def faster_algorithm(site: Site, wanted: Requirement) -> AlgorithmOnDims:
    """Return the algorithm that is synthesised for a requirement if it is faster on the fabric than the one that `auto` takes.

    Where no schedule can be made, and of equally fast ones, it is the one that `auto` takes.

    Raises:
        InputError: As `fastest`.
    """
    served = fastest(site, wanted).served
    with suppress(InputError):
        made = made_algorithm(site, wanted)
        if made is not None and end_fs(site, wanted, made.algorithm) < end_fs(site, wanted, served.algorithm):
            return made
    return served
