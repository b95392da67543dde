"""PyTorch's own pieces, as Emu executes them: DTensor, FSDP2, DDP, its pipelines, eager kernels.

Sources: PyTorch 2.13, whose rules real ranks of Emu show; torchao at eab345c (December 2024),
torchao/float8/{float8_linear,float8_ops}.py, for casts to FP8.
"""

from emu.model.pipeline.pipeline_order import ORDERS
from emu.model.recompute import OPS
from emu.model.stack.software import (
    EXPOSED,
    FOREACH,
    FUSED,
    LAYERS,
    NO,
    NOTHING,
    OVERLAPPED,
    ROW,
    TENSOR,
    UNFUSED,
    WHOLE,
    YES,
    Casts,
    Software,
)
from emu.trace.device.measured import CUDNN, FA2, FA3

PYTORCH = Software(
    name="pytorch",
    title="PyTorch",
    settings={
        "tp": (EXPOSED,),
        "cp": (OVERLAPPED,),
        "ep": (EXPOSED,),
        "dp": (OVERLAPPED,),
        "pp": (OVERLAPPED,),
        "messages": (WHOLE,),
        "accumulation": (UNFUSED,),
        "attention": (FA2, CUDNN, FA3),
        "compile": (NOTHING, LAYERS),
        "optimizer": (FUSED, FOREACH),
        "fp8": (NOTHING, TENSOR, ROW),
        "fp8_gather": (NO, YES),
    },
    unfusable=(),
    casts={
        TENSOR: Casts(5, 5, 2, 5, 2, 0, 5, 2),
        ROW: Casts(3, 3, 5, 3, 5, 0, 3, 5),  # along tokens the scales are found by a pass of their own
    },
    orders=tuple(ORDERS),
    shardings=("ddp", "zero1", "fsdp"),
    recompute=("none", "selective", "full", OPS),
    keeper="eager PyTorch keeps",
    shards_over_part=True,
    is_executed=True,
    is_eager=True,
    groups_experts=True,  # torch.nn.functional.grouped_mm; torchao converts linear layers alone
    routes_whole_sequences=True,
    gathers_cast=True,  # torch/distributed/fsdp/_fully_shard/_fsdp_api.py, the `param_dtype` of a `MixedPrecisionPolicy`
    keeps_whole_logits=True,
    keeps_dtensors=True,
    keeps_messages=True,  # torch/distributed/pipelining/stage.py
    packs_ring=True,  # torch/distributed/tensor/experimental/_context_parallel/_attention.py
    updates_tensors=True,  # torch/distributed/optim/zero_redundancy_optimizer.py
)
