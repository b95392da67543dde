"""How many bytes a training run takes: of one rank, and of the host that holds all of them."""

from emu.model.model import Model
from emu.model.plan import Plan

FLOAT32 = 4
# Weight, gradient, and the two moments of AdamW.
_STATES = 4
# Eager PyTorch keeps somewhat more for the backward pass than every operator's output once (measured: 1.13 to 1.27).
_KEPT = 1.25
# Emu, PyTorch and numba, imported, before any tensor is made.
PROCESS_BYTES = 500_000_000
RANK_BYTES = 4_000_000


def rank_bytes(model: Model, plan: Plan) -> int:
    """Largest live storage of one rank in float32 with AdamW: states, the buckets of DDP, and activations."""
    states = _STATES + (1 if plan.dp > 1 else 0)
    activations = _KEPT * plan.pass_batch * model.activations(plan.seq, plan.tp)
    return round(FLOAT32 * (states * model.parameters(plan.tp) + activations))


def host_bytes(model: Model, plan: Plan, kept_gradients: int = 0) -> int:
    """What one host takes that holds every rank of the plan, and then the reference, which is smaller than all ranks.

    Args:
        model: What is trained.
        plan: How.
        kept_gradients: Of how many steps the gradients of all ranks and of the reference are kept.
    """
    shard, whole = model.parameters(plan.tp), model.parameters()
    rank = rank_bytes(model, plan) + FLOAT32 * kept_gradients * shard + RANK_BYTES
    alone = rank_bytes(model, plan.alone()) + FLOAT32 * kept_gradients * whole
    return PROCESS_BYTES + plan.world * rank + alone
