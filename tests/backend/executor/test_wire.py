import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from collectives.ring import reduce_scatter
from emu.backend.executor import wire as wire_module
from emu.backend.executor.execute import Buffers, execute
from emu.backend.executor.wire import CHANNELS, GlooWire, Lane, Links, UnreachableError, reach_store, serve_store
from emu.backend.rank.call import Members
from emu.collective.operation import operation
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError, RunError

N = 4


@pytest.fixture(scope="module")
def links() -> Iterator[list[Links]]:
    store = serve_store()
    yield connect(store, N, timeout_s=20.0)
    del store  # it is there for as long as it is held


def connect(store: TCPStore, n: int, timeout_s: float) -> list[Links]:
    made: dict[int, Links] = {}

    def join(rank: int) -> None:
        made[rank] = Links(reach_store("127.0.0.1", store.port), rank, n, timeout_s=timeout_s)

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


def wires(links: list[Links], *ranks: int, name: str = "world") -> list[GlooWire]:
    return [links[rank].wire(Members(name, ranks)) for rank in ranks]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.complex64, torch.uint8]
)
def test_every_dtype_arrives_bit_by_bit(links: list[Links], dtype: torch.dtype) -> None:
    first, second = wires(links, 0, 1)
    sent = torch.randint(0, 2, (1001,)).to(dtype)
    got = torch.zeros_like(sent)
    arrival = second.receive(0, 1, 0, got)
    first.send(0, 1, 0, sent).wait()
    arrival.wait()
    assert torch.equal(got, sent)


def test_messages_of_one_channel_arrive_in_order_and_channels_do_not_wait_for_one_another(links: list[Links]) -> None:
    first, second = wires(links, 0, 1)
    sends = [first.send(0, 1, channel, torch.tensor([value])) for channel, value in ((5, 1), (5, 2), (CHANNELS - 1, 3), (5, 4))]
    got = [torch.zeros(1, dtype=torch.int64) for _ in range(4)]
    second.receive(0, 1, CHANNELS - 1, got[0]).wait()
    for place in got[1:]:
        second.receive(0, 1, 5, place).wait()
    for send in sends:
        send.wait()
    assert [int(t) for t in got] == [3, 1, 2, 4]


def test_lanes_and_groups_of_the_same_ranks_are_apart(links: list[Links]) -> None:
    groups = [wires(links, 0, 2, name=name) for name in ("a", "b")]
    sends, value = [], 0
    for lane in Lane:
        for sender, _ in groups:
            sends.append(sender.send(0, 1, 7, torch.tensor([value]), lane))
            value += 1
    got: dict[tuple[int, Lane], Tensor] = {}
    for group in (1, 0):
        for lane in reversed(Lane):
            got[group, lane] = torch.zeros(1, dtype=torch.int64)
            groups[group][1].receive(0, 1, 7, got[group, lane], lane).wait()
    for send in sends:
        send.wait()
    assert [int(got[group, lane]) for lane in Lane for group in (0, 1)] == list(range(value))


def test_all_members_agree_on_the_number_of_a_group_whoever_asks_first(links: list[Links]) -> None:
    names = [f"group {i}" for i in range(20)]
    numbers: dict[int, list[int]] = {}

    def ask(rank: int) -> None:
        order = names if rank % 2 else names[::-1]
        told = {name: links[rank].wire(Members(name, (0, 1, 2, 3)))._number for name in order}
        numbers[rank] = [told[name] for name in names]

    together([lambda rank=rank: ask(rank) for rank in range(N)])
    assert all(numbers[rank] == numbers[0] for rank in range(N))
    assert len(set(numbers[0])) == len(names)


def test_more_groups_than_a_tag_tells_apart_are_refused(links: list[Links], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "GROUPS", 1)
    with pytest.raises(RunError, match="a job can make 1 groups, this is number"):
        wires(links, 0, 1, name="one too many")


@pytest.mark.parametrize("channel", [-1, CHANNELS])
def test_a_tag_that_does_not_fit_is_refused(links: list[Links], channel: int) -> None:
    with pytest.raises(InputError, match=f"a tag or channel must be 0..32767 between processes, got {channel}"):
        wires(links, 0, 1)[0].send(0, 1, channel, torch.zeros(1))


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (3, 1, 2)])
def test_a_schedule_between_processes_gets_the_bits_of_one(links: list[Links], members: tuple[int, ...]) -> None:
    n, count = len(members), 29
    op, schedule = operation("reduce_scatter", n), reduce_scatter(n)
    inputs = torch.randn(n, count)
    counts = op.block_counts(count)
    alone, apart = ({r: Buffers(inputs[r], torch.empty(int(counts[r]))) for r in range(n)} for _ in range(2))
    execute(schedule, op, alone, counts=counts)
    on = wires(links, *members, name=str(members))
    together([lambda r=r: execute(schedule, op, {r: apart[r]}, counts=counts, wire=on[r]) for r in range(n)])
    assert all(torch.equal(apart[r].output, alone[r].output) for r in range(n))


def test_a_helper_lives_with_the_first_member(links: list[Links]) -> None:
    n, members = 3, (2, 0, 3)
    ranks = np.arange(n)
    schedule = Schedule.build(n, 1, [Sends(ranks, n, 0, reduce=True), Sends(n, ranks, 0)], helpers=1)
    op = operation("all_reduce", n)
    inputs = torch.randn(n, 17)
    alone, apart = ({r: Buffers(inputs[r], torch.empty(17)) for r in range(n)} for _ in range(2))
    execute(schedule, op, alone)
    on = wires(links, *members, name="with a helper")
    counts = np.array([17])
    together([lambda r=r: execute(schedule, op, {r: apart[r]}, counts=counts, wire=on[r]) for r in range(n)])
    assert all(torch.equal(apart[r].output, alone[r].output) for r in range(n))


def test_a_rank_that_is_silent_for_too_long_is_named() -> None:
    store = serve_store()
    first, _ = connect(store, 2, timeout_s=0.2)
    with pytest.raises(UnreachableError, match=r"rank 1 has not answered for 0\.2 s"):
        wires([first, first], 0, 1)[0].receive(1, 0, 0, torch.zeros(1)).wait()
    with pytest.raises(UnreachableError, match="rank 1 cannot be reached"):  # gloo closes the connection after that
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
