"""The bytes that a host needs to execute the ranks of a plan in float32, estimated before any of them begins."""

from emu.model.model import Model
from emu.model.operator import Cut, Tokens
from emu.model.plan.plan import Plan

FLOAT32 = 4
# Weight, gradient, and the two moments of AdamW.
_STATES = 4
# Beside what is saved, as the backward pass begins: the logits, and two gradients of that size on the way through the loss.
_LOGITS = 3
# Emu, PyTorch and numba, imported, before any tensor is made.
PROCESS_BYTES = 500_000_000
RANK_BYTES = 4_000_000


def rank_bytes(model: Model, plan: Plan) -> int:
    """Return the peak bytes of one rank in float32 with AdamW, at the first gradient of a pass or in the optimizer."""
    states = _STATES + (1 if plan.copies > 1 and not plan.shards_weights else 0)
    # What is sharded is so over all ranks that hold it, of experts too. An end of a pipeline holds somewhat more.
    held = model.parameters(plan.tp) // plan.holders if plan.holders > 1 else model.parameters(plan.tp, plan.ep, plan.etp)
    weights = FLOAT32 * held // plan.pp
    tokens = Tokens(plan.rank_seq, plan.seq if plan.cp_comm == "all_gather" else 0, plan.pass_batch)
    cut = Cut(plan.tp, plan.ep, plan.etp)
    kept = model.saved(tokens, cut).bytes() + FLOAT32 * tokens.n * (_LOGITS * model.vocab + (model.hidden if cut.tp > 1 else 0))
    table = FLOAT32 * model.vocab * model.hidden if cut.tp > 1 else 0  # DTensor's gradient of an embedding is whole at first
    return max(states * weights + table, (states - 1) * weights + kept)


def host_bytes(model: Model, plan: Plan, kept: int = 0) -> int:
    """Return the peak bytes of one host that runs every rank of a plan, and then the reference on one device.

    Args:
        model: The model that is trained.
        plan: The plan.
        kept: The number of copies of the gradients or weights of all ranks, and of the reference, that are kept.
    """
    shard, whole = model.parameters(plan.tp), model.parameters()
    rank = rank_bytes(model, plan) + FLOAT32 * kept * shard + RANK_BYTES
    alone = rank_bytes(model, plan.alone()) + FLOAT32 * kept * whole
    return PROCESS_BYTES + plan.world * rank + alone
