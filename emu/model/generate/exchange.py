"""The exchange of rows with the ranks of their experts (`emu.model.parallel.expert_parallel`), as a style of their module.

What it moves beside was counted as `emu.model.stack.passes` was. E experts, EP ranks of them, ETP of one.
"""

from emu.model.generate.item import Ask, Doing
from emu.model.generate.share import Share
from emu.model.generate.styles import NONE, Style
from emu.model.operator import Amount
from emu.model.routed import Routed

EXCHANGE = "routed rows"
_COUNT = "int64"  # of rows
_NUMBER, _END = 8, 4  # bytes of a count, of an index; and of where an expert's rows end


def exchange(share: Share, path: str) -> Style:
    """Of rows that travel; the weights are local, and each rank has those of its experts: if all of them, rows stay."""
    assert share.routed is not None, "a block without routed rows exchanges none"
    of = _Exchange(share, share.routed)
    if of.ep * of.etp == 1:
        return NONE
    axes = tuple(axis for axis, size in (("ep", of.ep), ("etp", of.etp)) if size > 1)
    return Style(
        enter=(*of.counts(), of.order(), *of.there(), of.sorted(first=True)),
        inside=(of.ends(),),
        leave=(of.sorted(first=False), *of.back()),
        enter_backward=(of.sorted_backward(), *of.back()),
        leave_backward=(*of.there(), of.sorted_backward()),
        holds=False,
        cuts=axes,
    )


class _Exchange:
    def __init__(self, share: Share, routed: Routed) -> None:
        self.share, self.routed, self.hidden = share, routed, share.model.hidden
        self.ep, self.etp, self.experts = share.plan.ep, share.plan.expert_tp, share.model.experts

    def counts(self) -> tuple[Doing, ...]:
        """How many rows each expert gets, where no capacity says it."""
        if self.share.plan.capacity:
            return ()
        to_experts = Ask("ep", "all_to_all", self.experts, _COUNT)
        to_shards = Ask("etp", "all_gather", self.etp * self.experts, _COUNT)
        return (*((to_experts,) if self.ep > 1 else ()), *((to_shards,) if self.etp > 1 else ()))

    def order(self) -> Doing:
        """The expert of each row, and the rows by expert: those that come here lie by rank, then by expert."""
        every, here, rows = self.etp * self.experts, self.experts // self.ep, self.routed.here
        numbers = 2 * here + every if here > 1 else here  # of the experts, one for each count; of one expert no copy
        repeated = 3 * rows + every + min(rows, every if here > 1 else here)
        sums = 2 * (self.experts + self.ep) + every + self.etp
        return self._work(numbers=numbers + repeated + 3 * rows + sums)

    def sorted(self, *, first: bool) -> Doing:
        """Rows by expert, and how many each has; or back as they came."""
        here, every = self.experts // self.ep, self.etp * self.experts
        more = Amount(fixed_bytes=_NUMBER * (every + here)) if first else Amount()
        numbers = Amount(fixed_bytes=_NUMBER * (1 if first else 4) * self.routed.here)
        return self.share.active(EXCHANGE, Amount(whole=2 * self._elements(self.routed.here)) + numbers + more)

    def ends(self) -> Doing:
        """Where the rows of each expert end."""
        here = self.experts // self.ep
        return self.share.active(EXCHANGE, Amount(fixed_bytes=(2 * _NUMBER + _NUMBER + _END) * here))

    def sorted_backward(self) -> Doing:
        """Zeros, to which the rows are added in the other order."""
        return self._work(whole=4 * self._elements(self.routed.here), numbers=self.routed.here)

    def there(self) -> tuple[Doing, ...]:
        """Rows to the ranks of their experts, and to all that share these."""
        return (*self._sent(self.routed.given), *self._shared("all_gather", (self._elements(sum(self.routed.taken)),)))

    def back(self) -> tuple[Doing, ...]:
        """What each of them gives of the rows, added up, to where they came from."""
        return (*self._shared("reduce_scatter", tuple(map(self._elements, self.routed.shares))), *self._sent(self.routed.taken))

    def _sent(self, rows: tuple[int, ...]) -> tuple[Doing, ...]:
        given, size = tuple(map(self._elements, rows)), self._elements(self.routed.most)
        return (self.share.asked("all_to_all", size, "ep", _unless_even(given, self.ep, size)),) if self.ep > 1 else ()

    def _shared(self, operation: str, given: tuple[int, ...]) -> tuple[Doing, ...]:
        size = self._elements(self.routed.here)
        asked = self.share.asked(operation, size, "etp", _unless_even(given, self.etp, size))
        return (asked._replace(prompt=True),) if self.etp > 1 else ()

    def _elements(self, rows: int) -> int:
        return rows * self.hidden

    def _work(self, whole: int = 0, numbers: int = 0) -> Doing:
        return self.share.active(EXCHANGE, Amount(whole=whole, fixed_bytes=_NUMBER * numbers))


def _unless_even(given: tuple[int, ...], blocks: int, size: int) -> tuple[int, ...]:
    return () if all(each * blocks == size for each in given) else given
