"""The shapes that come out of DTensor's operators are those that PyTorch tells by its fake tensors."""

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from emu.cluster.threads import shortcuts
from emu.cluster.threads.threads import ThreadRanks


def used(rank: int) -> None:
    """Operators of each kind, on shapes in any order; a sum of what lies alike, and of what does not."""
    mesh = init_device_mesh("cpu", (2,))
    rows, columns = (distribute_tensor(torch.randn(6, 4), mesh, [Shard(dim)], src_data_rank=None) for dim in (0, 1))
    table = distribute_tensor(torch.randn(5, 4), mesh, [Replicate()], src_data_rank=None).requires_grad_()
    tokens = distribute_tensor(torch.tensor([[0, 3, 1], [4, 4, 2]]), mesh, [Replicate()], src_data_rank=None)
    found: Any = torch.nn.functional.embedding(tokens, table)
    assert isinstance(found, DTensor)
    (found + found).sum((0, 2)).sum().backward()
    (rows + columns).view(6, 2, 2)
    rows.t() + columns.t()
    (rows.t() + 1).detach()
    (rows + rows[:, :1]).mm(rows.t())


def test_shapes_are_those_of_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[object, tuple[object, object]] = {}
    plain = shortcuts.remembered_shapes

    def beside(describe: Any, specs: Any) -> Any:
        told = plain(describe, specs)

        def both(self: Any, schema: Any) -> Any:
            asked[schema.op, str(schema)] = told(self, schema), describe(self, schema)
            return asked[schema.op, str(schema)][0]

        return both

    monkeypatch.setattr("emu.cluster.threads.shortcuts.remembered_shapes", beside)
    ThreadRanks(2).run(used)
    assert {op for op, _ in asked} >= {*shortcuts.ANYWHERE}
    assert all(ours == theirs for ours, theirs in asked.values())
    assert ShardingPropagator._propagate_tensor_meta_non_cached.__module__.startswith("torch.")
