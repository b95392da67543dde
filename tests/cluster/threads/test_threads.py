import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import InputError, RunError

LINE = rf"\([^ ]*{Path(__file__).name}:\d+\)"


def cause_of(error):
    return error.value.__cause__


def test_results_come_in_rank_order():
    assert ThreadRanks(4).run(lambda rank: (rank, dist.get_rank(), dist.get_world_size())) == [(r, r, 4) for r in range(4)]


def test_one_rank_alone_takes_part_in_every_collective():
    def program(rank):
        tensor = torch.arange(3.0)
        dist.all_reduce(tensor)
        dist.barrier()
        gathered = [torch.empty(3)]
        dist.all_gather(gathered, tensor)
        return gathered[0].tolist()

    assert ThreadRanks(1).run(program) == [[0.0, 1.0, 2.0]]


def test_no_ranks_are_refused():
    with pytest.raises(InputError, match="ranks must be 1 or more, got 0"):
        ThreadRanks(0)


def test_a_second_run_on_the_same_ranks_is_refused():
    cluster = ThreadRanks(2)
    cluster.run(lambda rank: rank)
    with pytest.raises(RunError, match="cluster: these ranks have run already; make a new cluster for another run"):
        cluster.run(lambda rank: rank)


def test_64_ranks_reduce():
    def program(rank):
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor)
        return tensor.item()

    assert ThreadRanks(64).run(program) == [64 * 63 / 2] * 64


def test_only_one_rank_runs_at_a_time_and_hands_on_where_it_waits():
    order = []

    def program(rank):
        order.append(f"{rank} before")
        dist.barrier()
        order.append(f"{rank} after")

    ThreadRanks(3).run(program)
    assert order == ["0 before", "1 before", "2 before", "2 after", "0 after", "1 after"]


def test_an_unawaited_request_does_not_hold_its_rank():
    def program(rank):
        tensor = torch.ones(1)
        work = dist.all_reduce(tensor, async_op=True)
        before = tensor.item()
        work.wait()
        return before, tensor.item()

    assert ThreadRanks(2).run(program) == [(1.0, 2.0), (2.0, 2.0)]


def test_a_rank_that_asks_whether_a_request_is_done_lets_the_others_run():
    def program(rank):
        work = dist.all_reduce(torch.ones(1), async_op=True)
        asked = 0
        while not work.is_completed():
            asked += 1
        return asked

    assert ThreadRanks(3).run(program) == [0, 0, 0]


class TestWhatARankHasForItself:
    def test_each_rank_draws_the_numbers_of_a_fresh_process(self):
        def program(rank):
            drawn = []
            for _ in range(3):
                drawn.append(torch.rand(1).item())
                dist.barrier()
            return drawn

        generator = torch.Generator()  # starts from the default seed
        expected = [torch.rand(1, generator=generator).item() for _ in range(3)]
        assert ThreadRanks(3).run(program) == [expected] * 3

    def test_a_seed_set_by_one_rank_is_not_another_s(self):
        def program(rank):
            torch.manual_seed(rank), np.random.seed(rank), random.seed(rank)  # noqa: NPY002
            dist.barrier()
            return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002

        expected = [
            (
                torch.rand(1, generator=torch.Generator().manual_seed(r)).item(),
                np.random.RandomState(r).rand(),
                random.Random(r).random(),
            )
            for r in range(3)
        ]
        assert ThreadRanks(3).run(program) == expected

    def test_of_a_pair_of_normal_numbers_the_second_is_the_rank_s_own(self):
        def program(rank):
            drawn = []
            for _ in range(4):
                drawn.append(np.random.normal())  # noqa: NPY002
                dist.barrier()
            return drawn

        assert ThreadRanks(3).run(program) == [np.random.RandomState(r).normal(size=4).tolist() for r in range(3)]

    def test_of_a_pair_of_python_s_normal_numbers_too(self):
        def program(rank):
            drawn = []
            for _ in range(4):
                drawn.append((random.gauss(0, 1), random.random()))
                dist.barrier()
            return drawn

        own = [random.Random(r) for r in range(3)]
        assert ThreadRanks(3).run(program) == [[(each.gauss(0, 1), each.random()) for _ in range(4)] for each in own]

    def test_the_caller_s_generators_are_as_before(self):
        torch.manual_seed(5), random.seed(5), np.random.seed(5)  # noqa: NPY002
        ThreadRanks(2).run(lambda _: (torch.rand(3), random.random(), np.random.rand()))  # noqa: NPY002
        drawn = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
        torch.manual_seed(5), random.seed(5), np.random.seed(5)  # noqa: NPY002
        assert drawn == (torch.rand(1), random.random(), np.random.rand())  # noqa: NPY002


class TestUndo:
    @pytest.fixture
    def threads(self):
        """Let an operator use three threads, a number that no rank has, and give that number."""
        before = torch.get_num_threads()
        torch.set_num_threads(3)
        yield 3
        torch.set_num_threads(before)

    def test_everything_is_as_before_after_a_run_that_failed(self, threads):
        world = dist.distributed_c10d._world
        backends = list(dist.Backend.backend_list)
        mesh_init = dist.device_mesh.DeviceMesh.__init__

        def program(rank):
            raise ValueError

        with pytest.raises(RunError):
            ThreadRanks(2).run(program)
        assert dist.distributed_c10d._world is world
        assert not dist.is_initialized()
        assert torch.get_num_threads() == threads
        assert dist.Backend.backend_list == backends
        assert dist.device_mesh.DeviceMesh.__init__ is mesh_init
        assert ThreadRanks(2).run(lambda rank: rank) == [0, 1]


def test_two_runs_are_equal_to_the_bit():
    def program(rank):
        torch.manual_seed(rank)
        model = DistributedDataParallel(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    recordings = [Recording(3), Recording(3)]
    first, second = (ThreadRanks(3, recording=r).run(program) for r in recordings)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, first[0]) for a in first)
    assert recordings[0].trace().digest() == recordings[1].trace().digest()


def test_the_collector_is_as_before_once_the_ranks_have_run():
    before, seen = gc.get_threshold(), []
    ThreadRanks(2).run(lambda _: seen.append(gc.get_threshold()[0] > before[0]))
    assert seen == [True] * 2
    assert gc.get_threshold() == before
