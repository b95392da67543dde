import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from collectives.ring import reduce_scatter
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.wire import GlooWire, reach_store, serve_store
from emu.collective.algorithm import schedule as schedule_of
from emu.collective.operation import operation
from emu.collective.schedule import Schedule, Sends
from emu.errors import RunError
from tests.backend.executor.test_executor import nothing

N = 4


@pytest.fixture(scope="module")
def links() -> Iterator[list[GlooWire]]:
    store = serve_store()
    yield connect(store, N, timeout_s=20.0)
    del store  # it is there for as long as it is held


def connect(store: TCPStore, n: int, timeout_s: float, of_rank: tuple[int, ...] = ()) -> list[GlooWire]:
    made: dict[int, GlooWire] = {}

    def join(rank: int) -> None:
        made[rank] = GlooWire(reach_store("127.0.0.1", store.port), rank, n, timeout_s=timeout_s, of_rank=of_rank)

    together([lambda rank=rank: join(rank) for rank in range(n)])
    return [made[rank] for rank in range(n)]


def together(bodies) -> None:
    errors = []

    def guarded(body) -> None:
        try:
            body()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def wires(links: list[GlooWire], *ranks: int) -> list[GlooWire]:
    return [links[rank].among(ranks) for rank in ranks]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.complex64, torch.uint8]
)
def test_every_dtype_arrives_bit_by_bit(links: list[GlooWire], dtype: torch.dtype) -> None:
    first, second = wires(links, 0, 1)
    sent = torch.randint(0, 2, (1001,)).to(dtype)
    got = torch.zeros_like(sent)
    arrival = second.receive(0, 1, 0, got)
    first.send(0, 1, 0, sent).wait()
    arrival.wait()
    assert torch.equal(got, sent)


def test_messages_between_two_processes_arrive_in_order(links: list[GlooWire]) -> None:
    first, second = wires(links, 0, 1)
    sends = [first.send(0, 1, channel, torch.tensor([value])) for channel, value in ((5, 1), (0, 2), (7, 3))]
    got = [torch.zeros(1, dtype=torch.int64) for _ in sends]
    for place in got:
        second.receive(0, 1, 0, place).wait()
    for send in sends:
        send.wait()
    assert [int(t) for t in got] == [1, 2, 3]


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (3, 1, 2)])
def test_a_schedule_between_processes_gets_the_bits_of_one(links: list[GlooWire], members: tuple[int, ...]) -> None:
    n, count = len(members), 29
    op, schedule = operation("reduce_scatter", n), reduce_scatter(n)
    inputs = torch.randn(n, count)
    counts = op.block_counts(count)
    alone, apart = ({r: Buffers(inputs[r], nothing(int(counts[r]))) for r in range(n)} for _ in range(2))
    execute(schedule, op, alone, counts=counts)
    on = wires(links, *members)
    together([lambda r=r: execute(schedule, op, {r: apart[r]}, counts=counts, wire=on[r]) for r in range(n)])
    assert all(torch.equal(apart[r].output, alone[r].output) for r in range(n))


def test_a_helper_lives_with_the_first_member(links: list[GlooWire]) -> None:
    n, members = 3, (2, 0, 3)
    ranks = np.arange(n)
    schedule = Schedule.build(n, 1, [Sends(ranks, n, 0, reduce=True), Sends(n, ranks, 0)], helpers=1)
    op = operation("all_reduce", n)
    inputs = torch.randn(n, 17)
    alone, apart = ({r: Buffers(inputs[r], nothing(17)) for r in range(n)} for _ in range(2))
    execute(schedule, op, alone)
    on = wires(links, *members)
    counts = np.array([17])
    together([lambda r=r: execute(schedule, op, {r: apart[r]}, counts=counts, wire=on[r]) for r in range(n)])
    assert all(torch.equal(apart[r].output, alone[r].output) for r in range(n))


@pytest.mark.parametrize("schedule", ["ring@3", "direct", "halving-doubling"])
@pytest.mark.parametrize("members", [(0, 1, 2, 3, 4, 5, 6, 7), (5, 0, 7, 2), (6, 1)])
def test_processes_with_several_ranks_get_the_bits_of_one(schedule: str, members: tuple[int, ...]) -> None:
    """Messages of several pairs of ranks share the way between two processes."""
    of_rank = (0, 0, 0, 1, 1, 1, 2, 2)
    store = serve_store()
    links = connect(store, 3, 20.0, of_rank)
    n, counts = len(members), np.array([101])
    op, chosen = operation("all_reduce", n), schedule_of("all_reduce", schedule, n)
    inputs = torch.randn(n, 101)
    alone, apart = ({r: Buffers(inputs[r], nothing(101)) for r in range(n)} for _ in range(2))
    execute(chosen, op, alone, counts=counts)
    held = [{r: apart[r] for r in range(n) if of_rank[members[r]] == p} for p in range(3)]
    bodies = [
        lambda p=p: execute(chosen, op, held[p], counts=counts, wire=links[p].among(members)) for p in range(3) if held[p]
    ]
    together(bodies)
    assert all(torch.equal(apart[r].output, alone[r].output) for r in range(n))


def test_a_rank_that_is_silent_for_too_long_is_named() -> None:
    store = serve_store()
    first, _ = connect(store, 2, timeout_s=0.2)
    with pytest.raises(RunError, match=r"rank 1 has not answered for 0\.2 s"):
        wires([first, first], 0, 1)[0].receive(1, 0, 0, torch.zeros(1)).wait()
    with pytest.raises(RunError, match="rank 1 cannot be reached"):  # gloo closes the connection after that
        wires([first, first], 0, 1)[0].send(0, 1, 0, torch.zeros(1)).wait()


def test_the_store_listens_on_the_loopback_alone() -> None:
    store = serve_store()
    reach_store("127.0.0.1", store.port).set("a", "b")
    assert store.get("a") == b"b"
    assert listening_hosts(store.port) == {"0100007F"}


def listening_hosts(port: int) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    local = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {host for host, at in local if int(at, 16) == port}
