"""The vocabulary that ranks share: Megatron-LM fills one up that tensor parallelism does not divide.

Source: Megatron-LM (commit d98e8a64), megatron/training/vocab_utils.py, `calculate_padded_vocab_size`: to a multiple of
128 * tp, 128 being the default of `make_vocab_size_divisible_by`. Megatron-LM fills up every vocabulary; here one that tp
divides stays as the model's source prints it, which is mostly a size that was filled up already.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack

_EACH = 128  # rows of a rank are a multiple of this
_PARTS = 2**10  # of a model with another vocabulary that are kept


def filled_up(plan: Plan, model: Model, stack: Stack) -> Model:
    """The model with the vocabulary that its ranks share: its own, if tp divides that."""
    if stack.software != "megatron" or model.vocab % plan.tp == 0 or model.describe is None:
        return model
    multiple = _EACH * plan.tp
    return _with_vocabulary(model, -(-model.vocab // multiple) * multiple)


def filled_up_told(plan: Plan, model: Model, stack: Stack) -> tuple[str, ...]:
    """A sentence of the size to which it is filled up; nothing where it is not."""
    size = filled_up(plan, model, stack).vocab
    if size == model.vocab:
        return ()
    filled = f"the vocabulary of {model.vocab:,} is filled up to {size:,}, a multiple of {_EACH} x tp={plan.tp}"
    return (f"{filled}; MFU counts its own",)


@lru_cache(maxsize=16)
def _with_vocabulary(model: Model, size: int) -> Model:
    if model.describe is None:
        return model
    found = model.describe(replace(cast("Any", model.config), vocab=size))
    return replace(found, part=lru_cache(_PARTS)(found.part))
