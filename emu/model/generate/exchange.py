"""The exchange of token rows with the ranks of their experts (`emu.model.parallel.expert_parallel`), a style of their module.

The bytes that it moves besides were counted in the same way as those of `emu.model.stack.passes`. E experts, EP ranks of them,
ETP ranks of one.
"""

from emu.model.generate.item import Action, Ask, Share
from emu.model.generate.styles import NONE, Style
from emu.model.operator import INPUT, Amount, RowSum
from emu.model.routed_rows import RoutedRows

EXCHANGE = "routed rows"
_COUNT = "int64"  # of rows
_NUMBER, _END = 8, 4  # bytes of a count, of an index; and of where an expert's rows end


def exchange(share: Share, path: str) -> Style:
    """Return the style of a block of experts whose token rows travel.

    The weights are local, and each rank has those of its experts. A rank that has all experts exchanges no rows.
    """
    assert share.routed is not None, "a block without routed rows exchanges none"
    of = _Exchange(share, share.routed)
    if of.ep * of.etp == 1:
        return NONE
    axes = tuple(axis for axis, size in (("ep", of.ep), ("etp", of.etp)) if size > 1)
    return Style(
        enter=(*of.counts(), of.order(), *of.there(), of.sorted(first=True)),
        inside=(of.ends(),),
        leave=(of.sorted(first=False), *of.back()),
        enter_backward=(*of.sorted_backward(), *of.back()),
        leave_backward=(*of.there(), *of.sorted_backward()),
        holds=False,
        cuts=axes,
    )


class _Exchange:
    """The exchange of one block of experts."""

    def __init__(self, share: Share, routed: RoutedRows) -> None:
        self.share, self.routed, self.hidden = share, routed, share.model.hidden
        self.ep, self.etp, self.experts = share.plan.ep, share.plan.expert_tp, share.model.experts

    def counts(self) -> tuple[Action, ...]:
        """Return the requests for the number of rows of each expert; with a capacity there are none."""
        if self.share.plan.capacity:
            return ()
        to_experts = Ask("ep", "all_to_all", self.experts, _COUNT)
        to_shards = Ask("etp", "all_gather", self.etp * self.experts, _COUNT)
        return (*((to_experts,) if self.ep > 1 else ()), *((to_shards,) if self.etp > 1 else ()))

    def order(self) -> Action:
        """Return the computation of each row's expert, and of the order of rows: arrived rows lie by rank, then by expert."""
        every, here, rows = self.etp * self.experts, self.experts // self.ep, self.routed.here
        numbers = 2 * here + every if here > 1 else here  # of the experts, one for each count; of one expert no copy
        repeated = 3 * rows + every + min(rows, every if here > 1 else here)
        sums = 2 * (self.experts + self.ep) + every + self.etp
        return self._work(numbers=numbers + repeated + 3 * rows + sums)

    def sorted(self, *, first: bool) -> Action:
        """Return the copy of rows into the order of experts, with the counts (`first`), or back into the order of arrival."""
        here, every = self.experts // self.ep, self.etp * self.experts
        more = Amount(fixed_bytes=_NUMBER * (every + here)) if first else Amount()
        numbers = Amount(fixed_bytes=_NUMBER * (1 if first else 4) * self.routed.here)
        return self.share.active(EXCHANGE, Amount(whole=2 * self._elements(self.routed.here)) + numbers + more)

    def ends(self) -> Action:
        """Return the computation of where the rows of each expert end."""
        here = self.experts // self.ep
        return self.share.active(EXCHANGE, Amount(fixed_bytes=(2 * _NUMBER + _NUMBER + _END) * here))

    def sorted_backward(self) -> tuple[Action, ...]:
        """Return the backward of a sort: zeros, to which the rows are added in the other order."""
        added = RowSum(INPUT, self.routed.here, self.routed.here, self.hidden)
        zeros = self._work(whole=self._elements(self.routed.here))
        return zeros, self.share.active(EXCHANGE, added.amount, added.shape)

    def there(self) -> tuple[Action, ...]:
        """Return the requests that bring rows to the ranks of their experts, and to all ranks that share these."""
        return (*self._sent(self.routed.given), *self._shared("all_gather", (self._elements(sum(self.routed.taken)),)))

    def back(self) -> tuple[Action, ...]:
        """Return the requests that add up the experts' outputs and bring them back to the rows' own ranks."""
        return (*self._shared("reduce_scatter", tuple(map(self._elements, self.routed.shares))), *self._sent(self.routed.taken))

    def _sent(self, rows: tuple[int, ...]) -> tuple[Action, ...]:
        given, size = tuple(map(self._elements, rows)), self._elements(self.routed.most)
        return (self.share.asked("all_to_all", size, "ep", _unless_even(given, self.ep, size)),) if self.ep > 1 else ()

    def _shared(self, operation: str, given: tuple[int, ...]) -> tuple[Action, ...]:
        size = self._elements(self.routed.here)
        asked = self.share.asked(operation, size, "etp", _unless_even(given, self.etp, size))
        return (asked._replace(prompt=True),) if self.etp > 1 else ()

    def _elements(self, rows: int) -> int:
        return rows * self.hidden

    def _work(self, whole: int = 0, numbers: int = 0) -> Action:
        return self.share.active(EXCHANGE, Amount(whole=whole, fixed_bytes=_NUMBER * numbers))


def _unless_even(given: tuple[int, ...], blocks: int, size: int) -> tuple[int, ...]:
    return () if all(each * blocks == size for each in given) else given
