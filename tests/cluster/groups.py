"""Programs that make groups in orders drawn at random, each of some ranks, and then reduce over each of them.

A group is made in one of the ways that PyTorch has. Those of one rank need not be made in the order of another's, but for
groups of the same members.
"""

import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

N = 4
# Of these all ranks know, and make them in one order; gloo takes no others, as it blocks until all members are there.
TOGETHER = ("new_group", "subgroups", "enumeration", "mesh", "flat mesh")
APART = ("local", "partial", "split", "split of a part")


@dataclass(frozen=True)
class Drawn:
    """Call it with a rank; it tells, by group and in the order of the draw, the sum over the members' numbers.

    Args:
        seed: Of the draw.
        kinds: Of groups that may be drawn.
        mixed: Whether every rank makes its own groups in an order of its own.
    """

    seed: int
    kinds: tuple[str, ...] = TOGETHER + APART
    mixed: bool = True

    @property
    def wanted(self):
        """The kind and the members of each group, where a kind has members."""
        draw = random.Random(self.seed)
        kinds = [draw.choice(self.kinds) for _ in range(draw.randint(2, 8))]
        return [(kind, tuple(sorted(draw.sample(range(N), draw.randint(1, N))))) for kind in kinds]

    def order(self, rank):
        """The order in which a rank makes them: those that all make stay where they are, and those of equal members."""
        order = list(range(len(self.wanted)))
        draw = random.Random(f"{self.seed} {rank}")
        for _ in range(20 if self.mixed else 0):
            at = draw.randrange(len(order) - 1)
            one, other = (self.wanted[i] for i in order[at : at + 2])
            if {one[0], other[0]} <= {*APART} and _members(*one) != _members(*other):
                order[at : at + 2] = order[at + 1], order[at]
        return order

    def __call__(self, rank):
        half = dist.new_group([0, 1, 2]) if "split of a part" in self.kinds else None
        made = {i: _make(*self.wanted[i], rank, half) for i in self.order(rank)}
        found = []
        for i in range(len(made)):
            for group in made[i]:
                number = torch.tensor([10.0**rank])
                dist.all_reduce(number, group=group)
                found.append((i, int(number)))
        dist.barrier()
        return found

    def expected(self, rank):
        """Return what a rank must tell, worked out without a group."""
        return [(i, sum(10**r for r in m)) for i, each in enumerate(self.wanted) for m in _members(*each) if rank in m]


def _members(kind, members):
    """The groups that are made, by their members."""
    if kind in ("subgroups", "enumeration"):
        return [(0, 1), (2, 3)] if kind == "subgroups" else [(0, 3), (1, 2)]
    if kind in ("mesh", "flat mesh"):
        return [(0, 2), (1, 3), (0, 1), (2, 3)] + ([(0, 1, 2, 3)] if kind == "flat mesh" else [])
    if kind == "split of a part":
        return [tuple(r for r in members if r < 3)]
    return [members]


def _make(kind, members, rank, part):
    """The groups of this rank."""
    if kind == "new_group":
        groups = [dist.new_group(list(members))]
    elif kind == "local":
        groups = [dist.new_group(list(members), use_local_synchronization=True)]
    elif kind == "partial":
        groups = [dist.new_group(list(members))] if rank in members else []
    elif kind == "split":
        groups = [dist.distributed_c10d._get_default_group().split_group(list(members))]
    elif kind == "split of a part":
        groups = [part.split_group([r for r in members if r < 3])] if rank < 3 else []
    elif kind == "subgroups":
        groups = [dist.new_subgroups(2)[0]]
    elif kind == "enumeration":
        groups = [dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])[0]]
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        groups = [mesh["a"].get_group(), mesh["b"].get_group()]
        groups += [mesh._flatten("c").get_group()] if kind == "flat mesh" else []
    return [group for group in groups if isinstance(group, dist.ProcessGroup)]
