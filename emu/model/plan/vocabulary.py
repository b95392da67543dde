"""The vocabulary that ranks share: Megatron-LM pads a vocabulary that tensor parallelism does not divide.

Source: Megatron-LM (commit d98e8a64), megatron/training/vocab_utils.py, `calculate_padded_vocab_size`: to a multiple of 128 *
tp, 128 being the default of `make_vocab_size_divisible_by`. Megatron-LM pads every vocabulary; here a vocabulary that tp
divides stays as the model's source prints it, which is usually a padded size already.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack

_EACH = 128  # the rows of a rank are a multiple of this
_PARTS = 2**10  # the most cached parts of a model with a padded vocabulary


def padded_model(plan: Plan, model: Model, stack: Stack) -> Model:
    """Return the model with the vocabulary that its ranks share; the model itself if tp divides its vocabulary."""
    if not stack.software.pads_vocabulary or model.vocab % plan.tp == 0 or model.describe is None:
        return model
    multiple = _EACH * plan.tp
    return _with_vocabulary(model, -(-model.vocab // multiple) * multiple)


def padding_note(plan: Plan, model: Model, stack: Stack) -> tuple[str, ...]:
    """Return a sentence with the padded size of the vocabulary; () if it is not padded."""
    size = padded_model(plan, model, stack).vocab
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
