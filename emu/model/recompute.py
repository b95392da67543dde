"""The outputs of a layer that are kept where only some of its operators are recomputed in the backward."""

from collections.abc import Sequence

from emu.model.operator import ATTENTION, BIAS, PRODUCT, ModelOperator

OPS = "ops"  # the word of a plan


def outputs_kept(operators: Sequence[ModelOperator]) -> frozenset[int]:
    """Return the places of those operators of a layer whose outputs are kept where a plan says `recompute=ops`.

    They are attention and every second product, from the first one on; a product with a bias is another operator of PyTorch,
    and counts as none, as one of experts does. Source: torchtitan at 9dec370 (December 2024), its option `op` of selective
    activation checkpointing, torchtitan/parallelisms/parallelize_llama.py.
    """
    biased = {operator.name for operator in operators if operator.kind == BIAS}
    products = [i for i, o in enumerate(operators) if o.kind == PRODUCT and not o.experts and o.name not in biased]
    return frozenset(products[::2]) | {i for i, operator in enumerate(operators) if operator.kind == ATTENTION}
