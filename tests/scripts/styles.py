"""PyTorch's parallel styles, one after another, in a script as a person starts it: each is held to one process.

The pieces of PyTorch that they take are imported while the ranks run. Arguments: the folder of the tests, and a style; all
unless one is given.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")  # some styles are old
sys.path.insert(0, str(Path(sys.argv[1]).parent))
dist.init_process_group("nccl")

from tests.cluster.styles import STYLES, check  # noqa: E402

for name in sys.argv[2:] or STYLES:
    torch.manual_seed(0)
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, STYLES[name](dist.get_rank()))
    check(told)
    if dist.get_rank() == 0:
        print(name)  # noqa: T201
