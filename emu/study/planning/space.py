"""Which plans could train a model on so many NPUs: every product of axes and settings that software and model take.

What is given and not searched: layers as even as they go, `cp_comm=all_gather`, no capacity, the default norm.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations, product
from math import gcd

from emu.errors import InputError
from emu.model.fits import OF_MEGATRON, check_fits, check_runs, spread
from emu.model.model import Model
from emu.model.order import ORDERS, default_order
from emu.model.plan import CHOICES, Plan, divisors
from emu.model.stack import Stack
from emu.study.training.placed import axes_of

PLACEMENTS = 8  # orders of a plan's axes that are tried at most, its own first


@dataclass(frozen=True)
class Space:
    """All plans of a model on exactly so many NPUs."""

    model: Model
    stack: Stack
    npus: int
    global_batch: int
    seq: int

    def plans(self) -> Iterator[Plan]:
        """Each once, in a fixed order."""
        for tp, cp, pp in product(self._tensor, self._context, sorted(divisors(self.npus))):
            if self.npus % (tp * cp * pp) == 0 and self.global_batch % (self.npus // (tp * cp * pp)) == 0:
                yield from self._of_axes(tp, cp, pp, self.npus // (tp * cp * pp))

    @cached_property
    def _tensor(self) -> list[int]:
        return sorted(divisors(gcd(self.npus, *self.model.tp_divides.values())))

    @cached_property
    def _context(self) -> list[int]:
        return [cp for cp in sorted(divisors(self.npus)) if cp == 1 or self.seq % (2 * cp) == 0]

    def _of_axes(self, tp: int, cp: int, pp: int, dp: int) -> Iterator[Plan]:
        sharding = self._known("sharding", CHOICES["sharding"]) if dp * cp > 1 else ("ddp",)
        sequence = (False, True) if tp > 1 else (False,)
        settings = product(sequence, sharding, CHOICES["recompute"], self._experts(tp, tp * cp * dp))
        batches = list(self._batches(pp, self.global_batch // dp))
        for (sp, sharded, recompute, (ep, etp)), (vp, order, layers, microbatch) in product(settings, batches):
            with suppress(InputError):
                plan = Plan(
                    tp=tp,
                    cp=cp,
                    ep=ep,
                    dp=dp,
                    pp=pp,
                    etp=etp,
                    sp=sp,
                    vp=vp,
                    order=order,
                    layers=layers,
                    sharding=sharded,
                    recompute=recompute,
                    cp_comm="all_gather" if cp > 1 else "p2p",
                    global_batch=self.global_batch,
                    seq=self.seq,
                    microbatch=microbatch,
                )
                check(plan, self.model, self.stack)
                yield plan

    def _experts(self, tp: int, stage_ranks: int) -> list[tuple[int, int]]:
        """Sizes of ep and etp."""
        if not self.model.experts:
            return [(1, 0)]
        over = sorted(divisors(gcd(self.model.experts, stage_ranks)))
        return [(ep, etp) for ep in over for etp in ((0, 1) if tp > 1 else (0,)) if stage_ranks % (ep * (etp or tp)) == 0]

    def _batches(self, pp: int, rank_batch: int) -> Iterator[tuple[int, str, tuple[int, ...], int]]:
        """Virtual stages, order, layers of each stage, and microbatch, which is a power of two."""
        for microbatch in (each for each in sorted(divisors(rank_batch)) if each & (each - 1) == 0):
            if pp == 1:
                yield 1, "", (), microbatch
                continue
            for vp, order in product(self._virtual(pp), self._known("pipeline", tuple(ORDERS))):
                if ORDERS[order].takes(vp) and ORDERS[order].fits(rank_batch // microbatch, pp):
                    yield vp, "" if order == default_order(vp) else order, self._layers(pp * vp), microbatch

    def _known(self, name: str, every: tuple[str, ...]) -> tuple[str, ...]:
        """Of the values of a setting, those that the software has."""
        return OF_MEGATRON[name] if self.stack.software == "megatron" else every

    def _virtual(self, pp: int) -> list[int]:
        """Powers of two, and what divides the layers."""
        most = self.model.layers // pp
        return [vp for vp in range(1, most + 1) if vp & (vp - 1) == 0 or self.model.layers % (pp * vp) == 0]

    def _layers(self, stages: int) -> tuple[int, ...]:
        return () if self.model.layers % stages == 0 else spread(self.model.layers, stages)


def check(plan: Plan, model: Model, stack: Stack) -> None:
    """Refuse what cannot be estimated.

    Raises:
        InputError: as `check_fits` and `check_runs`.
    """
    check_fits(plan, model)
    check_runs(plan, model, stack)


def placements(plan: Plan) -> list[tuple[str, ...]]:
    """Orders of the plan's axes, that of neighbouring NPUs first: its own, then others in a fixed order."""
    return list(islice(permutations(axes_of(plan)), PLACEMENTS))
