"""Programs run on threads at a pace, and the switch, device and clock that tests of several subjects share."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from emu.cluster.pace.timeliness import Pace, Tempo
from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.trace.device.device import Device

DEVICE = Device("a-device", {"float32": 1e12, "bfloat16": 1e12}, hbm_Bps=1e12, gemm_share=1.0, unhidden_share=0.0)
SWITCH = build_topology("switch:n=4,bandwidth=1GB/s,latency=500ns")
US = 10**9  # ticks
MS = 500  # float32 elements, timed as bfloat16, that take a millisecond at a pace of 1000
CHOICE = Choice.parse(("all_reduce=ring", "all_to_all=at-once", "broadcast=binomial"))
now, time_sleep = time.monotonic, time.sleep


def pace(*faults: str, computes: bool = False, factor: float = 1000) -> Pace:
    return Pace(Tempo(factor, DEVICE, "bfloat16", computes=computes), SWITCH, tuple(map(parse_fault, faults)))


def run(program: Callable[[int], Any], n: int = 2, *, of: Pace | None = None) -> list[Any]:
    return LocalCluster(of or pace()).run(n, CHOICE, program)


def took(do: Callable[[], object]) -> float:
    began = now()
    do()
    return now() - began


def steps(rank: int) -> list[float]:
    """When each of three steps has ended since the first began, of which each sends 20 ms."""
    parameter = torch.zeros(2, requires_grad=True)
    optimizer, module, found, began = torch.optim.SGD([parameter], 0.1), nn.Identity(), [], now()
    for _ in range(3):
        module(parameter)
        x = torch.ones(20 * MS)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        found.append(now() - began)
        optimizer.step()
    return found


def computes(rank: int) -> float:
    """Return the time of 40 products of 5e5 FLOPs each, at 1e9 FLOP/s, and of two barriers."""
    a = torch.ones(50, 100)

    def work() -> None:
        dist.barrier()
        for _ in range(40):
            _ = a @ a.T
        dist.barrier()

    return took(work)
