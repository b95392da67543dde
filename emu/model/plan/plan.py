"""The plan of a training run: the sizes of its axes, its batch, and how states and activations are divided.

A plan holds everything that changes the loss or the groups; a `Stack` holds what changes only time. Fields that a plan does not
set have Megatron-LM's default.

A rank counts the axes tp, cp, dp, pp, the first fastest: rank = tp + TP * (cp + CP * (dp + DP * pp)). Expert layers regroup the
same TP * CP * DP ranks of a stage: rank of the stage = etp + ETP * (ep + EP * edp). Source: Megatron-LM, core/parallel_state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from math import isqrt, prod

import numpy as np

from emu.arrays import I64
from emu.errors import InputError, must_be
from emu.model.operator import OPS, Cut
from emu.model.pipeline_order import ORDERS, default_order, orders_with, stages_of
from emu.registry import unknown

AXES = ("tp", "cp", "dp", "pp")  # the axes of all ranks, the first fastest
# Of each axis and of expert tensor parallelism, what stands before "parallel" in sentences.
TITLES = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "expert tensor", "dp": "data", "pp": "pipeline"}
COPY_AXES = ("cp", "dp")  # their ranks have copies of the same parameters, but for experts, and sum gradients over both
COPIES = "+".join(COPY_AXES)  # all of them as one axis, as `groups` reads it
DATA = "dp_cp"  # ... as requests of PyTorch's pieces have it, if there is more than dp
REPLICATE, SHARD = "dp_replicate", "dp_shard"  # the two halves of dp, if states are sharded over a part of it
ENDS = "embedding"  # the first and the last rank of each pipeline, which may have copies of one embedding
EXPERT_AXES = ("etp", "ep", "edp", "pp")  # the axes of the same ranks in expert layers
CHOICES = {
    "sharding": ("ddp", "zero1", "fsdp"),
    "recompute": ("none", "selective", "full", OPS),
    "cp_comm": ("p2p", "all_gather"),
}
# Words of others for a choice, and how to mend them.
MEANT = {"zero2": "ZeRO-2 is not modelled; take zero1 or fsdp", "zero3": "ZeRO-3 is sharding=fsdp"}
MOST_SEQUENCES, MOST_PASSES = 2**24, 2**13  # limits of a global batch, and of a rank's passes, each of which is generated
MAY_BE_ZERO = ("microbatch", "etp", "shard", "capacity", "imbalance", "clip", "dropout")


def group_rows(axis: str, sizes: Mapping[str, int]) -> I64:
    """Return [groups, members] the groups of ranks that differ only on `axis`, sorted by their first rank.

    Args:
        axis: One axis, such as `tp`; or several of one numbering, such as `cp+dp`, the first of them fastest in each group.
        sizes: The size of every axis.

    Raises:
        InputError: no such axis, or axes of both numberings.
    """
    rows = _rows(tuple(axis.split("+")), sizes)
    return rows[np.argsort(rows[:, 0])]


def cp_positions(place: int, of: int, seq: int) -> I64:
    """Return the positions in a sequence of the tokens of one of `of` ranks of cp: a chunk from the front, one from the back.

    Source: Dubey et al., The Llama 3 Herd of Models (2024), section 3.3.2.
    """
    if of == 1:
        return np.arange(seq)
    return np.arange(seq).reshape(2 * of, -1)[[place, 2 * of - 1 - place]].ravel()


def _rows(wanted: tuple[str, ...], sizes: Mapping[str, int]) -> I64:
    """Return [groups, members] the ranks of all groups whose members differ on the given axes, taken together, alone."""
    for axis in wanted:
        if axis not in sizes:
            raise unknown("axis of a plan", axis, sizes)
    axes = next((axes for axes in (AXES, EXPERT_AXES) if set(wanted) <= set(axes)), None)
    if axes is None:
        raise InputError(f"plan: {'+'.join(wanted)} mixes axes of all layers ({', '.join(AXES)}) with those of expert layers")
    shape = [sizes[axis] for axis in reversed(axes)]
    ranks = np.arange(int(np.prod(shape))).reshape(shape)
    last = [len(axes) - 1 - axes.index(axis) for axis in reversed(wanted)]
    size = int(np.prod([sizes[axis] for axis in wanted]))
    return np.moveaxis(ranks, last, range(-len(last), 0)).reshape(-1, size)


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of the axes and of the batch. Ranks: tp * cp * dp * pp; the expert axes regroup the ranks of a stage."""

    tp: int = 1  # tensor parallel
    cp: int = 1  # context parallel
    ep: int = 1  # expert parallel
    dp: int = 1  # data parallel
    pp: int = 1  # pipeline parallel
    etp: int = 0  # tensor parallel within an expert; 0: tp
    sp: bool = False  # sequence parallel: tp also shards activations between its products
    vp: int = 1  # virtual stages of a rank
    order: str = ""  # the order of the pipeline; "": 1f1b, or interleaved with virtual stages
    layers: tuple[int, ...] = ()  # layers of each stage, in the order of the model; (): equal numbers
    sharding: str = "ddp"  # sharded states: ddp none; zero1 optimizer states; fsdp also gradients and weights
    shard: int = 0  # the ranks of dp over which states are sharded (HSDP); 0: all
    recompute: str = "none"
    cp_comm: str = "p2p"  # p2p: keys and values go round a ring; all_gather: at once
    capacity: float = 0.0  # of an expert, as a multiple of its even share; further tokens are dropped; 0: no limit
    imbalance: float = 0.0  # of experts: (most - least) / most rows, if one expert has the most and all others the least
    clip: float = 1.0  # the norm to which gradients are clipped; 0: no clipping
    dropout: float = 0.0  # the share of elements of scores and of a block's output that are dropped in training
    global_batch: int = 16  # sequences of a step, over all ranks
    seq: int = 128  # tokens of a sequence
    microbatch: int = 0  # sequences of a rank in one pass; 0: all of its share, or 1 in a pipeline

    def __post_init__(self) -> None:
        for name, least in _LEAST:
            if not (value := getattr(self, name)) >= least:
                raise must_be("plan", name, f"{least} or more", value)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                said = getattr(self, name)
                raise unknown(f"{name} of a plan", said, known, MEANT.get(said, ""))
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
            raise must_be("plan", "tp", "2 or more with sp, which shards activations that tp leaves whole", self.tp)
        if self.stage_ranks % (self.expert_tp * self.ep):
            what = f"a divisor of the {self.stage_ranks} ranks of a stage (tp * cp * dp)"
            fits = self.stage_ranks % self.expert_tp == 0
            mend = (
                f"ep={nearest(self.ep, divisors(self.stage_ranks // self.expert_tp))}, or another etp"
                if fits
                else "a smaller etp"
            )
            raise must_be("plan", "etp * ep", what, self.expert_tp * self.ep, f"take {mend}")
        if self.shard and not self.shards_states:
            raise must_be("plan", "shard", "left out where sharding=ddp", self.shard, "or take sharding=zero1 or fsdp")
        if self.shard and (self.dp % self.shard or self.shard == 1):
            near = nearest(self.shard, divisors(self.dp) - {1})
            what = f"a divisor of dp={self.dp}{', above 1, as one rank shards nothing' if self.shard == 1 else ''}"
            raise must_be("plan", "shard", what, self.shard, f"take {near}" if near else "leave it out")

    def _check_batch(self) -> None:
        if self.global_batch > MOST_SEQUENCES:
            raise must_be("plan", "global_batch", f"at most {MOST_SEQUENCES:,} sequences", self.global_batch, "take fewer")
        if self.global_batch % self.dp:
            fits = nearest(self.dp, divisors(self.global_batch))
            mend = f"dp={fits}, or a global batch of {multiples(self.global_batch, self.dp)}"
            raise must_be("plan", "dp", f"a divisor of the global batch {self.global_batch}", self.dp, f"take {mend}")
        if self.microbatch and self.rank_batch % self.microbatch:
            what = f"a divisor of the {self.rank_batch} sequences of a rank"
            raise must_be(
                "plan", "microbatch", what, self.microbatch, f"take {nearest(self.microbatch, divisors(self.rank_batch))}"
            )
        if self.passes > MOST_PASSES:
            mend = f"take a global batch of at most {MOST_PASSES * self.dp * self.pass_batch:,}, or a larger microbatch"
            raise must_be("plan", "microbatches", f"at most {MOST_PASSES:,} of a rank in a step", self.passes, mend)
        parts = 2 * self.cp if self.cp > 1 else 1  # a rank has a chunk from the front and one from the back, for equal work
        if self.seq % parts:
            what = f"a multiple of {parts}, for 2 chunks of a sequence on each of the {self.cp} ranks of cp"
            raise must_be("plan", "seq", what, self.seq, f"take {multiples(self.seq, parts)}")
        if self.sp and self.rank_seq % self.tp:
            what = f"such that the {self.rank_seq} tokens of a rank divide by tp={self.tp}, as sp requires"
            raise must_be("plan", "seq", what, self.seq, f"take {multiples(self.seq, self.tp * parts)}")

    def _check_stages(self) -> None:
        for name, alone in (("vp", 1), ("order", "")):
            if self.pp == 1 and getattr(self, name) != alone:
                raise must_be("plan", name, f"{alone or 'left out'} where pp=1", getattr(self, name))
        if self.pp > 1:
            self.check_order()
        if self.layers and len(self.layers) != self.stages:
            raise must_be("plan", "the number of layers= entries", f"{self.stages}, one for each stage", len(self.layers))
        if self.layers and not all(self.layers[1:-1]):  # the ends have the embedding and the head besides
            raise must_be("plan", "layers", "1 or more in each stage between the first and the last", 0)

    def check_order(self, *, executed: bool = False) -> None:
        """Check that the order of the pipeline fits stages and microbatches; with `executed`, on real ranks.

        Raises:
            InputError: it does not; the message names values that do.
        """
        if self.pipeline not in ORDERS:
            raise unknown("order of a pipeline", self.pipeline, ORDERS)
        order, near = ORDERS[self.pipeline], f"in the order {self.pipeline}"
        if not order.takes(self.vp):
            allowed = " or ".join(map(str, order.virtual)) or "2 or more"
            raise must_be("plan", "vp", f"{allowed} {near}", self.vp, f"take order={' or '.join(orders_with(self.vp))}")
        sequences, least = self.dp * self.pass_batch, order.least(self.pp, executed=executed)
        if self.passes < least:
            others = [f"order={word}" for word in orders_with(self.vp) if ORDERS[word].fits(self.passes, self.pp)]
            mend = f"take {' or '.join([f'a global batch of {least * sequences}', *others])}"
            raise must_be("plan", "microbatches", f"{least} or more {near} of {self.pp} stages", self.passes, mend)
        if not order.has_whole_rounds(self.passes, self.pp):
            low = self.passes // self.pp * self.pp
            mend = f"take a global batch of {low * sequences} or {(low + self.pp) * sequences}"
            raise must_be("plan", "microbatches", f"a multiple of the {self.pp} stages {near}", self.passes, mend)

    @property
    def pipeline(self) -> str:
        """The name of the order of the pipeline, such as 1F1B."""
        return self.order or default_order(self.vp)

    @property
    def splits(self) -> bool:
        """True if backward passes are split into input and weight gradients."""
        return self.pp > 1 and ORDERS[self.pipeline].splits

    @property
    def stages(self) -> int:
        """The number of stages of the model: pp ranks of a pipeline with vp stages each."""
        return self.pp * self.vp

    @property
    def ends_meet(self) -> bool:
        """True if one rank holds both the embedding and the head."""
        return self.pp == 1 or ORDERS[self.pipeline].wraps

    @property
    def expert_tp(self) -> int:
        """The number of ranks that share an expert."""
        return self.etp or self.tp

    @property
    def exchanges(self) -> bool:
        """True if token rows are sent to the ranks of their experts; False if the ranks of tp share every expert."""
        return self.ep > 1 or self.expert_tp != self.tp

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every axis, including the expert axes; edp is tp * cp * dp / (etp * ep)."""
        edp = self.stage_ranks // (self.expert_tp * self.ep)
        return {axis: getattr(self, axis) for axis in AXES} | {"etp": self.expert_tp, "ep": self.ep, "edp": edp}

    @property
    def copy_axes(self) -> tuple[str, ...]:
        """The axes with two or more ranks whose ranks hold copies of the same (dense) parameters."""
        return tuple(axis for axis in COPY_AXES if getattr(self, axis) > 1)

    @property
    def copies(self) -> int:
        """The number of ranks that hold copies of the same (dense) parameters."""
        return prod(getattr(self, axis) for axis in COPY_AXES)

    @property
    def shards_states(self) -> bool:
        """True if ranks with copies of the same parameters divide the states of the optimizer among them, at least."""
        return self.sharding != "ddp"

    @property
    def shards_only_optimizer(self) -> bool:
        """True if ranks divide only the optimizer's states, and each holds all gradients and weights (ZeRO-1)."""
        return self.sharding == "zero1"

    @property
    def shards_weights(self) -> bool:
        """True if ranks with copies of the same parameters divide gradients and weights among them.

        They then divide optimizer states, too.
        """
        return self.sharding == "fsdp"

    @property
    def layer_settings(self) -> tuple[object, ...]:
        """The settings on which a rank's share of a layer depends, for each of its sequences."""
        return (self.tp, self.cp, self.cp_comm, self.sp, self.ep, self.etp, self.capacity)

    @property
    def stage_ranks(self) -> int:
        """The number of ranks of one place of the pipeline."""
        return self.tp * self.copies

    @property
    def world(self) -> int:
        """The number of ranks of the job."""
        return self.stage_ranks * self.pp

    @property
    def ring(self) -> int:
        """The number of ranks of cp that pass keys and values round a ring; 1 if cp does not use a ring."""
        return self.cp if self.cp_comm == "p2p" else 1

    @property
    def cut(self) -> Cut:
        """The numbers of ranks by which operators are divided to get the share of one rank."""
        return Cut(self.tp, self.ep, self.etp, sequence=self.sp)

    @property
    def shard_ranks(self) -> int:
        """The number of ranks of dp over which states are sharded."""
        return (self.shard or self.dp) if self.shards_states else 1

    @property
    def holders(self) -> int:
        """The number of ranks over which states are sharded; 1 if they are not."""
        return self.shard_ranks * self.copies // self.dp if self.shards_states else 1

    def sharers(self, *, travels: bool) -> int:
        """Return the number of ranks that share the optimizer states of one kind of parameters.

        Args:
            travels: True for experts to which token rows are sent, False for all other parameters.
        """
        return self.holders if not travels else self.sizes["edp"] if self.shards_states else 1

    @property
    def rank_seq(self) -> int:
        """The number of tokens of a sequence on one rank."""
        return self.seq // self.cp

    @property
    def rank_batch(self) -> int:
        """The sequences of one rank in a step."""
        return self.global_batch // self.dp

    @property
    def pass_batch(self) -> int:
        """The sequences of one rank in one pass."""
        return self.microbatch or (self.rank_batch if self.pp == 1 else 1)

    @property
    def passes(self) -> int:
        """The number of forward and backward passes of one rank in a step: its microbatches."""
        return self.rank_batch // self.pass_batch

    @property
    def tokens(self) -> int:
        """The tokens of a step, over all ranks."""
        return self.global_batch * self.seq

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the position of a rank on each axis, counted from 0."""
        return {axis: int(place) for axis, place in self.places(np.array(rank)).items()}

    def places(self, ranks: I64) -> dict[str, I64]:
        """Return the positions of ranks on each axis, with those on the axes of expert layers."""
        found, sizes = dict[str, I64](), self.sizes
        for axes in (EXPERT_AXES, AXES):
            at = np.unravel_index(ranks, [sizes[axis] for axis in reversed(axes)])
            found |= dict(zip(reversed(axes), at, strict=True))
        return found

    def copy_numbers(self, ranks: I64) -> I64:
        """Return the index of each rank among the ranks with copies of the same (dense) parameters."""
        at, numbers = self.places(ranks), 0 * ranks
        for axis in reversed(COPY_AXES):
            numbers = numbers * getattr(self, axis) + at[axis]
        return numbers

    def positions(self, rank: int) -> I64:
        """Return the positions in a sequence of a rank's tokens, in its order; a causal mask gives all ranks equal work."""
        return cp_positions(self.coordinates(rank)["cp"], self.cp, self.seq)

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """Return the groups of ranks that differ only on `axis`; `cp+dp` means on both axes."""
        return tuple(map(tuple, group_rows(axis, self.sizes).tolist()))

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Return the stages of a rank, in the order of the model."""
        return stages_of(self.coordinates(rank)["pp"], self.pp, self.vp, self.pipeline)

    def alone(self) -> "Plan":
        """Return the plan of the same batch on a single rank, which the reference runs."""
        kept = ("capacity", "clip", "global_batch", "seq")
        return Plan(**{name: getattr(self, name) for name in kept})


_LEAST = tuple(
    (f.name, 0 if f.name in MAY_BE_ZERO else 1) for f in fields(Plan) if f.type in (int, float)
)  # the least value of each field that is a number


def divisors(n: int) -> set[int]:
    """Return the divisors of n."""
    return {d for low in range(1, isqrt(n) + 1) if n % low == 0 for d in (low, n // low)}


def nearest(wanted: int, fitting: Iterable[int]) -> str:
    """Return a text of the largest fitting number below `wanted`, and the smallest above."""
    fits = sorted(fitting)
    near = ([f for f in fits if f < wanted][-1:], [f for f in fits if f > wanted][:1])
    return " or ".join(str(f) for found in near for f in found)


def multiples(n: int, of: int) -> str:
    """Return a text of the largest multiple of `of` up to n, and the next one."""
    low = n // of * of
    return " or ".join(str(m) for m in (low, low + of) if m)
