"""The sum of sparse tensors: what gloo gives, and requests of as many bytes as the ranks hold."""

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from emu.backend.rank.record import Recording
from emu.cluster.script_run import run_script
from emu.cluster.threads.threads import ThreadRanks
from emu.trace.trace import Kind
from tests.cluster.apart import run_apart
from tests.cluster.gloo import run_on_gloo

SCRIPT = Path(__file__).parents[2] / "scripts" / "sparse.py"
N = 3


def drawn(rank):
    """Return the sparse tensor of a rank: each has another number of values, some at one place, and the last has none."""
    count = (4, 2, 0)[rank]
    generator = torch.Generator().manual_seed(rank)
    places = torch.randint(0, 5, (1, count), generator=generator)
    return torch.sparse_coo_tensor(places, torch.randn(count, 3, generator=generator), (5, 3), check_invariants=True)


def summed(rank):
    tensor = drawn(rank)
    dist.all_reduce(tensor)
    return tensor.to_dense(), tensor.is_coalesced()


@pytest.mark.parametrize("per_process", [None, 2])
def test_every_rank_has_the_sum(per_process):
    found = ThreadRanks(N).run(summed) if per_process is None else run_apart(N, per_process, summed)[0]
    expected = sum(drawn(rank).to_dense() for rank in range(N))
    for dense, is_coalesced in found:
        assert torch.allclose(dense, expected)
        assert torch.equal(dense, found[0][0])
        assert is_coalesced


def test_what_is_timed_is_what_the_ranks_hold():
    recording = Recording(N)
    ThreadRanks(N, recording=recording).run(summed)
    events = recording.trace().events_of(0)
    sizes = [events.bytes[i] for i in range(len(events)) if events.kind[i] == Kind.COLLECTIVE]
    held = [drawn(rank).coalesce()._nnz() for rank in range(N)]
    assert sizes == [N * 9 * 8, sum(held) * 8, sum(held) * 3 * 4]


def test_all_is_as_on_gloo(tmp_path):
    for name in ("gloo", "ours"):
        (tmp_path / name).mkdir()
    run_on_gloo(SCRIPT, tmp_path / "gloo", N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run_script(SCRIPT, [str(tmp_path / "ours")], N)[1] == 0
    for rank in range(N):
        theirs, ours = (torch.load(tmp_path / name / f"{rank}.pt") for name in ("gloo", "ours"))
        assert theirs.keys() == ours.keys()
        for name, given in theirs.items():
            assert given.is_sparse == ours[name].is_sparse
            assert torch.allclose(given.to_dense(), ours[name].to_dense(), rtol=1e-6), name


def test_a_sum_that_is_asked_for_ahead_is_there_once_it_was_waited_for():
    def program(rank):
        tensors = [torch.eye(3)[rank : rank + 1].to_sparse() for _ in range(2)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        works[0].wait()
        future = works[1].get_future().wait()
        assert works[0].is_completed()
        assert works[0].is_success()
        assert works[0].result()[0] is tensors[0]
        assert future[0] is tensors[1]
        return [tensor.to_dense().tolist() for tensor in tensors]

    assert ThreadRanks(N).run(program) == [[[[1.0, 1.0, 1.0]]] * 2] * N


def test_an_embedding_with_sparse_gradients_learns_as_on_one_process():
    def learned(rank, n):
        torch.manual_seed(0)
        model = nn.Embedding(8, 2, sparse=True)
        words = torch.arange(6).view(3, 2)
        module = nn.parallel.DistributedDataParallel(model) if n > 1 else model
        given = words[rank : rank + 1] if n > 1 else words
        module(given).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        return model.weight.detach()

    for weight in ThreadRanks(N).run(lambda rank: learned(rank, N)):
        assert torch.allclose(weight, learned(0, 1), atol=1e-6)
