"""How a training run is laid over ranks: the sizes of its axes, its batch, and what its states and activations are split into.

A plan holds what changes the loss or the groups that talk; what changes only time is a `Stack`. What a plan does not say has
Megatron-LM's default.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from emu.arrays import I64
from emu.errors import must_be
from emu.model.operator import Cut
from emu.model.pipeline.order import ORDERS, check_order, default_order, stages_of
from emu.model.plan.ranks import AXES, chunks, groups, places
from emu.registry import unknown

CHOICES = {
    "sharding": ("ddp", "zero1", "fsdp"),
    "recompute": ("none", "selective", "full"),
    "cp_comm": ("p2p", "all_gather"),
}
_MAY_BE_ZERO = ("microbatch", "etp", "shard", "capacity", "imbalance", "clip", "dropout")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the axes and of the batch. Ranks: tp * cp * dp * pp; the expert axes regroup those of a stage."""

    tp: int = 1  # tensor parallel
    cp: int = 1  # context parallel
    ep: int = 1  # expert parallel
    dp: int = 1  # data parallel
    pp: int = 1  # pipeline parallel
    etp: int = 0  # tensor parallel within an expert; 0: tp
    sp: bool = False  # sequence parallel: tp also splits what lies between its products
    vp: int = 1  # virtual stages a rank
    order: str = ""  # of a pipeline; "": 1f1b, or interleaved where there are virtual stages
    layers: tuple[int, ...] = ()  # of each stage, in the order of the model; (): as many in each
    sharding: str = "ddp"  # ddp: nothing; zero1: optimizer states; fsdp: those, gradients and weights
    shard: int = 0  # over how many ranks of dp (HSDP); 0: all
    recompute: str = "none"
    cp_comm: str = "p2p"  # p2p: keys and values go round a ring; all_gather: at once
    capacity: float = 0.0  # of an expert, times its even share of tokens; what is beyond is dropped. 0: nothing is
    imbalance: float = 0.0  # of rows among experts: (most - least) / most, where one has the most and all others the least
    clip: float = 1.0  # the norm that gradients are cut to; 0: they are not
    dropout: float = 0.0  # share of the elements of scores, and of what a block gives, that are dropped in training
    global_batch: int = 16  # sequences a step, over all ranks
    seq: int = 128  # tokens a sequence
    microbatch: int = 0  # sequences a rank takes at once; 0: all of its share, or 1 in a pipeline

    def __post_init__(self) -> None:
        for name, least in _LEAST:
            if not (value := getattr(self, name)) >= least:
                raise must_be("plan", name, f"{least} or more", value)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown(f"{name} of a plan", getattr(self, name), known)
        for name in ("dropout", "imbalance"):
            if getattr(self, name) >= 1:
                raise must_be("plan", name, "0 or more and below 1", getattr(self, name))
        if self.imbalance and self.capacity:
            raise must_be("plan", "imbalance", "0 with a capacity, which fills all experts up", self.imbalance)
        self._check_axes()
        self._check_batch()
        self._check_stages()

    def _check_axes(self) -> None:
        if self.tp == 1 and self.sp:
            raise must_be("plan", "tp", "2 or more with sp, which splits what tp leaves whole", self.tp)
        if self.stage_ranks % (self.expert_tp * self.ep):
            what = f"a divisor of the {self.stage_ranks} ranks of a stage (tp * cp * dp)"
            fits = self.stage_ranks % self.expert_tp == 0
            mend = (
                f"ep={nearest(self.ep, divisors(self.stage_ranks // self.expert_tp))}, or another etp"
                if fits
                else "a smaller etp"
            )
            raise must_be("plan", "etp * ep", what, self.expert_tp * self.ep, f"take {mend}")
        if self.shard and self.sharding == "ddp":
            raise must_be("plan", "shard", "left out where sharding=ddp", self.shard, "or take sharding=zero1 or fsdp")
        if self.shard and (self.dp % self.shard or self.shard == 1):
            near = nearest(self.shard, divisors(self.dp) - {1})
            what = f"a divisor of dp={self.dp}{', above 1, as one rank shards nothing' if self.shard == 1 else ''}"
            raise must_be("plan", "shard", what, self.shard, f"take {near}" if near else "leave it out")

    def _check_batch(self) -> None:
        if self.global_batch % self.dp:
            fits = nearest(self.dp, divisors(self.global_batch))
            mend = f"dp={fits}, or a global batch of {multiples(self.global_batch, self.dp)}"
            raise must_be("plan", "dp", f"a divisor of the global batch {self.global_batch}", self.dp, f"take {mend}")
        if self.microbatch and self.rank_batch % self.microbatch:
            what = f"a divisor of the {self.rank_batch} sequences of a rank"
            raise must_be(
                "plan", "microbatch", what, self.microbatch, f"take {nearest(self.microbatch, divisors(self.rank_batch))}"
            )
        parts = 2 * self.cp if self.cp > 1 else 1  # a rank has a chunk from the front and one from the back: equal work
        if self.seq % parts:
            what = f"a multiple of {parts}, for 2 chunks of a sequence on each of the {self.cp} ranks of cp"
            raise must_be("plan", "seq", what, self.seq, f"take {multiples(self.seq, parts)}")
        if self.sp and self.rank_seq % self.tp:
            what = f"such that the {self.rank_seq} tokens of a rank divide by tp={self.tp}, as sp asks"
            raise must_be("plan", "seq", what, self.seq, f"take {multiples(self.seq, self.tp * parts)}")

    def _check_stages(self) -> None:
        for name, alone in (("vp", 1), ("order", "")):
            if self.pp == 1 and getattr(self, name) != alone:
                raise must_be("plan", name, f"{alone or 'left out'} where pp=1", getattr(self, name))
        if self.pp > 1:
            check_order(self.pipeline, self.pp, self.vp, self.passes, self.dp * self.pass_batch)
        if self.layers and len(self.layers) != self.stages:
            raise must_be("plan", "layers", f"a number for each of the {self.stages} stages", len(self.layers))
        if self.layers and not all(self.layers[1:-1]):  # the ends have the embedding and the head besides
            raise must_be("plan", "layers", "1 or more in each stage between the first and the last", 0)

    @property
    def pipeline(self) -> str:
        """The order of the pipeline."""
        return self.order or default_order(self.vp)

    @property
    def splits(self) -> bool:
        """Whether backwards are taken in two."""
        return self.pp > 1 and ORDERS[self.pipeline].splits

    @property
    def stages(self) -> int:
        """Of the model: pp ranks of a pipeline, each with vp."""
        return self.pp * self.vp

    @property
    def ends_meet(self) -> bool:
        """Whether one rank has the embedding and the head."""
        return self.pp == 1 or ORDERS[self.pipeline].wraps

    @property
    def expert_tp(self) -> int:
        """Ranks that share an expert."""
        return self.etp or self.tp

    @property
    def exchanges(self) -> bool:
        """Whether tokens travel to their experts: not where the ranks of tp, which have the same tokens, share every expert."""
        return self.ep > 1 or self.expert_tp != self.tp

    @property
    def sizes(self) -> dict[str, int]:
        """Of every axis, those of expert layers too: edp is what etp and ep leave of tp * cp * dp."""
        edp = self.stage_ranks // (self.expert_tp * self.ep)
        return {axis: getattr(self, axis) for axis in AXES} | {"etp": self.expert_tp, "ep": self.ep, "edp": edp}

    @property
    def stage_ranks(self) -> int:
        """Ranks of one place of the pipeline."""
        return self.tp * self.cp * self.dp

    @property
    def world(self) -> int:
        """Ranks of the run."""
        return self.stage_ranks * self.pp

    @property
    def ring(self) -> int:
        """Ranks of cp that pass keys and values round, each at a place of its own; 1: all of cp do the same."""
        return self.cp if self.cp_comm == "p2p" else 1

    @property
    def cut(self) -> Cut:
        """How operators are cut to what a rank has of each."""
        return Cut(self.tp, self.ep, self.etp, sequence=self.sp)

    @property
    def sharded(self) -> int:
        """Ranks of dp over which states are sharded."""
        return 1 if self.sharding == "ddp" else self.shard or self.dp

    @property
    def holders(self) -> int:
        """Ranks each of which has a part of the states: those of dp over which they are sharded, and of cp."""
        return 1 if self.sharding == "ddp" else self.sharded * self.cp

    @property
    def rank_seq(self) -> int:
        """Tokens of a sequence that one rank has."""
        return self.seq // self.cp

    @property
    def rank_batch(self) -> int:
        """Sequences of one rank a step."""
        return self.global_batch // self.dp

    @property
    def pass_batch(self) -> int:
        """Sequences that a rank takes at once."""
        return self.microbatch or (self.rank_batch if self.pp == 1 else 1)

    @property
    def passes(self) -> int:
        """Forward and backward passes of one rank a step: its microbatches."""
        return self.rank_batch // self.pass_batch

    @property
    def tokens(self) -> int:
        """Tokens a step, over all ranks."""
        return self.global_batch * self.seq

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is on each axis."""
        return places(rank, self.sizes)

    def positions(self, rank: int) -> I64:
        """Where in a sequence the tokens of a rank are, in its order: equal work under a causal mask."""
        return chunks(self.coordinates(rank)["cp"], self.cp, self.seq)

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that differ on `axis` alone; `cp+dp` on both."""
        return groups(axis, self.sizes)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank has, in the order of the model."""
        return stages_of(self.coordinates(rank)["pp"], self.pp, self.vp, self.pipeline)

    def alone(self) -> "Plan":
        """The same batch on one rank: what the reference runs."""
        kept = ("capacity", "clip", "global_batch", "seq")
        return Plan(**{name: getattr(self, name) for name in kept})


_LEAST = tuple((f.name, 0 if f.name in _MAY_BE_ZERO else 1) for f in fields(Plan) if f.type in (int, float))  # of each number


def divisors(n: int) -> set[int]:
    """Of n."""
    return {d for d in range(1, n + 1) if n % d == 0}


def nearest(wanted: int, fitting: Iterable[int]) -> str:
    """The largest that fits below, and the smallest above."""
    fits = sorted(fitting)
    near = ([f for f in fits if f < wanted][-1:], [f for f in fits if f > wanted][:1])
    return " or ".join(str(f) for found in near for f in found)


def multiples(n: int, of: int) -> str:
    """The largest below n, and the smallest above."""
    low = n // of * of
    return " or ".join(str(m) for m in (low, low + of) if m)
