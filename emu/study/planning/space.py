"""The plans that could train a model on a number of NPUs: all products of axes and settings that software and model allow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations, product
from math import factorial, gcd
from typing import Any

from emu.errors import InputError
from emu.model.model import Model
from emu.model.operator import OPS
from emu.model.pipeline_order import ORDERS, default_order
from emu.model.plan.plan import AXES, CHOICES, Plan, divisors
from emu.model.plan.plan_checks import check_fits_model, check_runs, tp_sizes
from emu.model.plan.stage_layers import even_layers
from emu.model.stack.stack import Stack
from emu.study.training.axes import axes_of

PLACEMENTS = 8  # limit of orders of a plan's axes that are tried
_LEFT_OUT = {  # values of words that are not searched unless they are given
    "vp": "vp that is no power of two and does not divide the layers evenly",
    "layers": "layers that are not spread as evenly as they go, the ends with fewer",
    "etp": "etp that does not divide tp",
    "capacity": "capacity but 0",
    "imbalance": "imbalance but 0",
    "clip": "clip but 1",
    "dropout": "dropout but 0",
}
_OF_EXPERTS = ("etp", "capacity", "imbalance")


@dataclass(frozen=True)
class Space:
    """All plans of a model on exactly this number of NPUs."""

    model: Model
    stack: Stack
    npus: int
    global_batch: int
    seq: int
    given: Mapping[str, Any] = field(default_factory=dict)  # fixed values of fields of a plan
    refused: list[str] = field(default_factory=list, compare=False)  # the error of the first product that is no plan

    def plans(self) -> Iterator[Plan]:
        """Yield each plan once, in a fixed order."""
        sizes = sorted(divisors(self.npus))
        tensor = self._values_of("tp", sorted(divisors(gcd(self.npus, *tp_sizes(self.model, self.stack).values()))))
        context = self._values_of("cp", [cp for cp in sizes if cp == 1 or self.seq % (2 * cp) == 0])
        for tp, cp, pp in product(tensor, context, self._values_of("pp", sizes)):
            dp = self.npus // (tp * cp * pp)
            if self.npus == tp * cp * pp * dp and self.global_batch % dp == 0 and dp in self._values_of("dp", [dp]):
                yield from self._plans_of_axes(tp, cp, pp, dp)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences for the user on the settings of plans, and the placements, that are not searched."""
        words = {word: told for word, told in _LEFT_OUT.items() if self.model.experts or word not in _OF_EXPERTS}
        told = [told for word, told in words.items() if word not in self.given]
        return (*told, f"all but {PLACEMENTS} of the {factorial(len(AXES))} placements of {len(AXES)} axes")

    def _values_of(self, name: str, every: Sequence[Any]) -> Sequence[Any]:
        """Return the values of setting `name` to search: the value that the user gave, or else all of `every`."""
        return [self.given[name]] if name in self.given else every

    def _plans_of_axes(self, tp: int, cp: int, pp: int, dp: int) -> Iterator[Plan]:
        """Yield the plans with these sizes of axes, in all combinations of the other settings."""
        ways = self.stack.software.shardings if dp * cp > 1 else ("ddp",)
        shardings = [
            each for each in product(self._values_of("sharding", ways), self._shards(dp)) if each[0] != "ddp" or not each[1]
        ]
        sequence = self._values_of("sp", (False, True) if tp > 1 else (False,))
        recompute = self._values_of("recompute", [how for how in CHOICES["recompute"] if how != OPS])
        keys = self._values_of("cp_comm", CHOICES["cp_comm"] if cp > 1 else ("p2p",))
        settings = product(sequence, shardings, recompute, keys, self._experts(tp, tp * cp * dp))
        every = product(settings, list(self._batches(pp, self.global_batch // dp)))
        axes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
        for (sp, (sharding, shard), recomputed, cp_comm, (ep, etp)), (vp, order, layers, microbatch) in every:
            own = {"sp": sp, "sharding": sharding, "shard": shard, "recompute": recomputed}
            own |= {"cp_comm": cp_comm, "ep": ep, "etp": etp}
            own |= {"vp": vp, "order": order, "layers": layers, "microbatch": microbatch}
            try:
                plan = Plan(**{**axes, **own, **self.given, "global_batch": self.global_batch, "seq": self.seq})
                check(plan, self.model, self.stack)
            except InputError as error:
                self.refused.extend([] if self.refused else [str(error)])
            else:
                yield plan

    def _shards(self, dp: int) -> Sequence[int]:
        """Return the values of `shard` to search: over how many ranks of dp states are sharded; 0: over all of them."""
        part = sorted(divisors(dp) - {1, dp}) if self.stack.software.shards_over_part else []
        return self._values_of("shard", [0, *part])

    def _experts(self, tp: int, stage_ranks: int) -> list[tuple[int, int]]:
        """Return the pairs of sizes of ep and etp; an etp of 0 is the size of tp."""
        if not self.model.experts:
            return [(1, 0)]
        over = self._values_of("ep", sorted(divisors(gcd(self.model.experts, stage_ranks))))
        within = self._values_of("etp", [0, *sorted(divisors(tp) - {tp})])
        return [(ep, etp) for ep in over for etp in within if stage_ranks % (ep * (etp or tp)) == 0]

    def _batches(self, pp: int, rank_batch: int) -> Iterator[tuple[int, str, tuple[int, ...], int]]:
        """Yield settings of the pipeline: virtual stages, order, layers of each stage, and microbatch."""
        for microbatch in self._values_of("microbatch", sorted(divisors(rank_batch))):
            if pp == 1:
                yield 1, "", (), microbatch
                continue
            passes, executed = rank_batch // (microbatch or 1), self.stack.software.is_executed
            for vp, order in product(self._virtual(pp), self._values_of("order", self.stack.software.orders)):
                if ORDERS[order].takes(vp) and ORDERS[order].fits(passes, pp, executed=executed):
                    layers = () if self.model.layers % (pp * vp) == 0 else even_layers(self.model.layers, pp * vp)
                    yield vp, "" if order == default_order(vp) else order, layers, microbatch

    def _virtual(self, pp: int) -> Sequence[int]:
        """Return the numbers of virtual stages to search: powers of two, and divisors of the layers."""
        most = (self.model.layers + 2) // pp
        every = [vp for vp in range(1, most + 1) if vp & (vp - 1) == 0 or self.model.layers % (pp * vp) == 0]
        return self._values_of("vp", every)


def check(plan: Plan, model: Model, stack: Stack) -> None:
    """Check that a plan can be estimated.

    Raises:
        InputError: the plan does not fit or does not run, as in `check_fits_model` and `check_runs`.
    """
    check_fits_model(plan, model, stack)
    check_runs(plan, model, stack)


def placements(plan: Plan) -> Sequence[tuple[str, ...]]:
    """Return the orders of the plan's axes to search, the plan's own order first.

    In each order the first axis has neighbouring NPUs.
    """
    return list(islice(permutations(axes_of(plan)), PLACEMENTS))
