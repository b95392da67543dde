"""Programs drawn at random: some collectives and messages among four ranks, and mostly one fault somewhere in them."""

import os
import random
import signal
import sys
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist

N = 4
# What a rank does at the fault, and what the run then says; None: the error that is raised is told.
FAULTS = {
    "none": "",
    "size": "mismatch",
    "dtype": "mismatch",
    "root": "mismatch|deadlock",
    "missing": "mismatch|deadlock",
    "extra": "mismatch|deadlock",
    "early end": "deadlock",
    "raises": "ValueError: drawn",
    "raises in a hook": "ValueError: drawn in a hook",
    "asks in a thread": "Default process group has not been initialized",
    "leaves": "exit 3",
    "dies": "process died",
    "is killed": "process died",
}
_KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier", "ring", "halves", "late")
_WITH_ROOT = ("broadcast",)
_WITH_DATA = ("all_reduce", "broadcast", "late")


@dataclass(frozen=True)
class Drawn:
    """Call it with a rank; what it returns must be the same wherever it runs."""

    seed: int
    fault: str

    @property
    def plan(self):
        """The kinds of its steps, at which of them the fault is, and on which rank."""
        draw = random.Random(self.seed)
        kinds = [draw.choice(_KINDS) for _ in range(draw.randint(3, 7))]
        at, who = draw.randrange(1, len(kinds)), draw.randrange(N)
        if self.fault in ("size", "dtype"):
            kinds[at] = draw.choice(_WITH_DATA)
        if self.fault == "root":
            kinds[at] = "broadcast"
        if self.fault in ("missing", "extra"):  # else it may be that nobody waits for it
            kinds += ["barrier", "all_reduce"]
        return kinds, at, who

    def __call__(self, rank):
        kinds, at, who = self.plan
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        found = []
        for i, kind in enumerate(kinds):
            here = self.fault if (i, rank) == (at, who) else "none"
            if here == "early end":
                return found
            if here != "missing":
                found.append(_step(kind, self.seed + i, rank, here, halves))
            if here == "extra":
                dist.all_reduce(torch.ones(2))
            _break(here)
        dist.barrier()
        return found


def _break(fault):
    if fault == "raises":
        raise ValueError("drawn")
    if fault == "raises in a hook":
        weight = torch.ones(2, requires_grad=True)
        weight.register_hook(_hook)
        weight.sum().backward()
    if fault == "asks in a thread":
        errors = []
        thread = threading.Thread(target=lambda: _kept(errors))
        thread.start()
        thread.join()
        raise errors[0]
    if fault == "leaves":
        sys.exit(3)
    if fault == "dies":
        os._exit(5)
    if fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)


def _kept(errors):
    try:
        dist.barrier()
    except Exception as error:
        errors.append(error)


def _hook(gradient):
    raise ValueError("drawn in a hook")


def _step(kind, seed, rank, fault, halves):
    draw = random.Random(seed)
    count, root = draw.choice([1, 3, 64, 5000]), draw.randrange(N)
    data = torch.randn(count + (fault == "size"), generator=torch.Generator().manual_seed(100 * seed + rank))
    if fault == "dtype":
        data = data.double()
    if kind in ("all_reduce", "late"):
        work = dist.all_reduce(data, async_op=True)
        if kind == "late":
            dist.barrier()
        work.wait()
    elif kind == "broadcast":
        dist.broadcast(data, (root + (fault == "root")) % N)
    elif kind == "all_gather":
        parts = [torch.empty(count + (fault == "size")) for _ in range(N)]
        dist.all_gather(parts, data)
        data = torch.cat(parts)
    elif kind == "reduce_scatter":
        data = data[0] * torch.ones(count)
        dist.reduce_scatter(data, [data.clone() for _ in range(N)])
    elif kind == "all_to_all":
        parts = [torch.empty(1 + other) for other in range(N)]
        dist.all_to_all(parts, [data[0] * torch.ones(1 + rank) for _ in range(N)])
        data = torch.cat(parts)
    elif kind == "ring":
        got = torch.empty(count)
        sent = dist.isend(data[:count].contiguous(), (rank + 1) % N, tag=seed)
        dist.recv(got, (rank - 1) % N, tag=seed)
        sent.wait()
        data = got
    elif kind == "halves":
        dist.all_reduce(data, group=halves[rank // 2])
    else:
        dist.barrier()
    return data.sum().item()
