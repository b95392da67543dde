"""Megatron-LM: fused kernels, a buffer of gradients that always lives, requests that overlap as its settings say.

Sources: Megatron-LM, megatron/training/arguments.py and megatron/core, for its defaults: what overlaps with computation there,
fused accumulation of gradients, attention by cuDNN (Transformer Engine). Logits stay cut (tensor_parallel/cross_entropy.py),
outputs are freed once they are sent (pipeline_parallel/schedules.py). Transformer Engine v1.13,
transformer_engine/pytorch/module/{linear,layernorm_linear,base}.py (delayed; weights are cast once a step, and a norm writes
FP8 itself); v2.8, pytorch/tensor/float8_blockwise_tensor.py (block), for casts to FP8.
"""

from emu.model.stack.software import (
    BACKWARD,
    BLOCK,
    CHUNKED,
    DELAYED,
    EXPOSED,
    FUSED,
    INTERLEAVED,
    NO,
    NOTHING,
    OVERLAPPED,
    SCATTERED,
    TENSOR,
    UNFUSED,
    WHOLE,
    YES,
    Casts,
    Software,
)
from emu.trace.device.measured import CUDNN, FA2, FA3

_SCALED = 4 / 128  # bytes of a scale, of 128 elements

MEGATRON = Software(
    name="megatron",
    title="Megatron-LM",
    settings={
        "tp": (BACKWARD, EXPOSED, OVERLAPPED, CHUNKED),
        "cp": (OVERLAPPED, EXPOSED),
        "ep": (EXPOSED, OVERLAPPED),
        "dp": (EXPOSED, OVERLAPPED, CHUNKED),
        "pp": (INTERLEAVED, EXPOSED, OVERLAPPED),
        "messages": (WHOLE, SCATTERED),
        "accumulation": (FUSED, UNFUSED),
        "attention": (CUDNN, FA2, FA3, UNFUSED),
        "compile": (NOTHING,),
        "optimizer": (FUSED,),
        "fp8": (NOTHING, DELAYED, TENSOR, BLOCK),
        "fp8_gather": (NO, YES),
    },
    unfusable=("activation", "loss", "router", "permutation"),
    casts={
        DELAYED: Casts(3, 0, 2, 3, 2, 1, 0, 0),
        TENSOR: Casts(5, 5, 2, 5, 2, 1, 0, 0),
        BLOCK: Casts(3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 2, 0, 0),
    },
    orders=("1f1b", "interleaved"),
    shardings=("ddp", "zero1"),
    recompute=("none", "selective", "full"),
    keeper="fused kernels keep",
    pads_vocabulary=True,  # megatron/training/vocab_utils.py
    casts_dispatch=True,
    adds_gradients=True,  # megatron/core/distributed/param_and_grad_buffer.py, in the dtype of gradients
)
