"""Steps of a pipeline of two stages or more by 1F1B, its layers sharded by FSDP2 over the ranks of a stage."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, PASSES = 32, 4, 4
stages = int(sys.argv[1])
dist.init_process_group()
mesh = init_device_mesh("cpu", (stages, dist.get_world_size() // stages), mesh_dim_names=("pp", "dp"))
torch.manual_seed(0)
layers = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(6)))
for layer in layers:
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(layers, mesh=mesh["dp"])
example = torch.empty(BATCH, WIDTH, requires_grad=True)
place = mesh.get_local_rank("pp")
stage = PipelineStage(
    layers, place, stages, torch.device("cpu"), input_args=(example,), output_args=(example,), group=mesh.get_group("pp")
)
schedule = Schedule1F1B(stage, PASSES, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
for _ in range(4):
    given, wanted = torch.randn(BATCH * PASSES, WIDTH), torch.randn(BATCH * PASSES, WIDTH)
    if place == 0:
        schedule.step(given)
    elif place == stages - 1:
        schedule.step(target=wanted)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
