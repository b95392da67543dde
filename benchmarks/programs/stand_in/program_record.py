"""Write down what a program's rank does: imported by the line that is put before each program.

Every optimizer step is written with a digest of the bits of all parameters of the optimizer and their norms, every `print`
with its text. In a process of torchrun, the name `cuda` means the CPU as it does on emulated ranks, by the same replacements,
and any backend means gloo; nothing else is changed. The generators of Python, numpy and torch are seeded by the rank in both
places, for programs that seed none of them.
"""

import atexit
import builtins
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed import device_mesh, distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook

from emu.cluster.npu.npu import Npu
from emu.cluster.npu.npu_emulation import emulate_npus

_OUT = Path(os.environ["PROGRAM_RECORD"])
_RANKS = int(os.environ["PROGRAM_RANKS"])
_print = builtins.print
_changes = contextlib.ExitStack()


def rank():
    """The rank of who asks: by its group, by torchrun, or by the number of the process that the program has started."""
    if dist.is_initialized():
        return dist.get_rank()
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    number = multiprocessing.current_process().name.rpartition("-")[2]
    return (int(number) - 1) % _RANKS if number.isdigit() else "parent"


def seed():
    """Seed all generators by the rank."""
    number = rank() if rank() != "parent" else 0
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the generator that programs use
    torch.manual_seed(number)


def seeding(spawn):
    """Make a spawn of emulated ranks seed what it calls, as a process of its own that imports this does."""

    def call(fn, *args, **kwargs):
        def seeded(*given):
            seed()
            return fn(*given)

        return spawn(seeded, *args, **kwargs)

    call.seeds = True
    return call


def write(kind, **what):
    """Add a line to what the rank has done."""
    with (_OUT / f"{rank()}.jsonl").open("a") as out:
        out.write(json.dumps({"kind": kind, **what}) + "\n")


def stepped(optimizer, *_):
    """Write down the parameters after a step of an optimizer."""
    bits, norms = hashlib.sha256(), []
    with torch.no_grad():
        for group in optimizer.param_groups:
            for each in group["params"]:
                held = getattr(each, "_local_tensor", each).detach().cpu().contiguous()
                bits.update(held.reshape(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b"")
                norms.append(float(held.double().norm()))
    write("step", bits=bits.hexdigest()[:16], norms=norms)


def printed(*words, sep=" ", end="\n", file=None, flush=False):
    """Print, and write it down."""
    if file in (None, sys.stdout, sys.stderr):
        write("print", text=(" " if sep is None else sep).join(map(str, words)))
    _print(*words, sep=sep, end=end, file=file, flush=flush)


def _gloo(original, at):
    def call(*args, **kwargs):
        if len(args) > at:
            args = (*args[:at], "gloo", *args[at + 1 :])
        else:
            kwargs["backend"] = "gloo"
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        return original(*args, **kwargs)

    return call


def _leave():
    """End at once: gloo's threads now and then abort a process, or keep it, that has not destroyed its groups."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(hasattr(sys, "last_value"))


def _on_gloo():
    """Let a process of torchrun find an emulated GPU, and make every group one of gloo."""
    _changes.enter_context(emulate_npus(Npu("h100", 80_000_000_000), _RANKS))
    atexit.register(_leave)
    init, group = _gloo(dist.init_process_group, 0), _gloo(dist.new_group, 2)
    for module in (dist, distributed_c10d, device_mesh):
        for name, replacement in (("init_process_group", init), ("new_group", group)):
            if hasattr(module, name):
                setattr(module, name, replacement)


seed()
if os.environ["PROGRAM_PLACE"] == "gloo":
    _on_gloo()
elif not hasattr(torch.multiprocessing.spawn, "seeds"):
    torch.multiprocessing.spawn = seeding(torch.multiprocessing.spawn)
register_optimizer_step_post_hook(stepped)
builtins.print = printed
