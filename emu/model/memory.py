"""How many bytes a training run takes: of one rank, and of the host that holds all of them."""

from collections.abc import Iterable

from emu.dtypes import item_bytes
from emu.model.kernels import kept_by
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import Cut, ModelOperator, Tokens
from emu.model.plan import Plan
from emu.model.stack import Stack

FLOAT32 = 4
# Weight, gradient, and the two moments of AdamW.
_STATES = 4
# Beside what is saved, as the backward pass begins: the logits, and two gradients of that size on the way through the loss.
_LOGITS = 3
# Emu, PyTorch and numba, imported, before any tensor is made.
PROCESS_BYTES = 500_000_000
RANK_BYTES = 4_000_000


def rank_bytes(model: Model, plan: Plan) -> int:
    """Largest live storage of one rank in float32 with AdamW: at the first gradient of a pass, or as the optimizer steps."""
    states = _STATES + (1 if plan.dp * plan.cp > 1 and plan.sharding != "fsdp" else 0)
    sharded = 1 if plan.sharding == "ddp" else plan.sharded * plan.cp
    # What is sharded is so over all ranks that hold it, of experts too. An end of a pipeline holds somewhat more.
    held = model.parameters(plan.tp) // sharded if sharded > 1 else model.parameters(plan.tp, plan.ep, plan.etp)
    weights = FLOAT32 * held // plan.pp
    tokens = Tokens(plan.rank_seq, plan.seq if plan.cp_comm == "all_gather" else 0, plan.pass_batch)
    cut = Cut(plan.tp, plan.ep, plan.etp)
    kept = model.saved(tokens, cut).bytes() + FLOAT32 * tokens.n * (_LOGITS * model.vocab + (model.hidden if cut.tp > 1 else 0))
    table = FLOAT32 * model.vocab * model.hidden if cut.tp > 1 else 0  # DTensor's gradient of an embedding is whole at first
    return max(states * weights + table, (states - 1) * weights + kept)


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Bytes that a rank holds as the backward of a pass begins, by part, in the precision of a stack.

    Of a pipeline an even share of the layers, and the passes that its first rank has under way. Activations are what the
    software's kernels keep.
    """
    precision, cut = stack.precision, Cut(plan.tp, plan.ep, plan.etp, sequence=plan.sp)
    held = model.parameters(plan.tp, plan.ep, plan.etp) // plan.pp
    sharded = plan.sharded * plan.cp if plan.sharding != "ddp" else 1
    whole = 1 if plan.sharding != "fsdp" else sharded
    return {
        "weights": held * item_bytes(precision.weight) // whole,
        "gradients": held * item_bytes(precision.gradient) // whole,
        "optimizer_state": held * precision.kept_bytes // sharded,
        "activations": _activations(model, plan, cut, stack),
    }


def _activations(model: Model, plan: Plan, cut: Cut, stack: Stack) -> int:
    item = item_bytes(stack.precision.activation)

    def saved_of(operators: Iterable[ModelOperator]) -> int:
        return sum(kept_by(o.on(cut), stack, plan).bytes(item) for o in operators)

    tokens = Tokens(plan.rank_seq, plan.seq if plan.cp_comm == "all_gather" else 0, plan.pass_batch, plan.capacity)
    under_way = plan.passes if plan.pipeline == "gpipe" else min(plan.passes, plan.pp)
    logits = _LOGITS * tokens.n * model.vocab * item // plan.tp
    if plan.recompute != "full":
        return sum(n * saved_of(part) for n, _, part in model.parts(tokens)) * under_way // plan.pp + logits
    kept = tokens.n * model.hidden * item // (plan.tp if plan.sp else 1)  # what goes into each layer
    saved = {name: saved_of(part) for _, name, part in model.parts(tokens)}
    layer = max(size for name, size in saved.items() if name not in (EMBEDDING, HEAD))
    return kept * model.layers * under_way // plan.pp + layer + saved[EMBEDDING] + saved[HEAD] + logits


def host_bytes(model: Model, plan: Plan, kept: int = 0) -> int:
    """What one host takes that holds every rank of the plan, and then the reference, which is smaller than all ranks.

    Args:
        model: What is trained.
        plan: How.
        kept: How many copies of gradients or weights of all ranks, and of the reference, are kept.
    """
    shard, whole = model.parameters(plan.tp), model.parameters()
    rank = rank_bytes(model, plan) + FLOAT32 * kept * shard + RANK_BYTES
    alone = rank_bytes(model, plan.alone()) + FLOAT32 * kept * whole
    return PROCESS_BYTES + plan.world * rank + alone
