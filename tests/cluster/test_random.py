"""Programs drawn at random, right ones and ones with a fault: each ends in its time, with the right data or with one line."""

import random
import threading

import pytest
import torch
import torch.distributed as dist

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError

LONGEST_S = 120
HARMLESS = ("none", "exception in a thread")  # a thread of the user's own that ends is none of the rank's


def draw(seed):
    """Ranks, requests, and which rank does what wrong at which of them."""
    drawn = random.Random(seed)
    n = drawn.randint(2, 5)
    requests = [(drawn.choice(sorted(REQUESTS)), drawn.randint(1, 40), drawn.randrange(n)) for _ in range(drawn.randint(1, 8))]
    return n, requests, drawn.choice(FAULTS), drawn.randrange(n), drawn.randrange(len(requests))


def ring(rank, n, x):
    there = torch.empty_like(x)
    sending = dist.isend(x, (rank + 1) % n)
    dist.recv(there, (rank - 1) % n)
    sending.wait()
    return there


def all_reduce(rank, n, x, root):
    dist.all_reduce(x)
    return x


def all_reduce_later(rank, n, x, root):
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return x


def broadcast(rank, n, x, root):
    dist.broadcast(x, root)
    return x


def gather(rank, n, x, root):
    got = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(got, x)
    return torch.stack(got)


def reduce_scatter(rank, n, x, root):
    out = torch.empty_like(x)
    dist.reduce_scatter(out, [x + r for r in range(n)])
    return out


def exchange(rank, n, x, root):
    got = [torch.empty_like(x) for _ in range(n)]
    dist.all_to_all(got, [x + 100 * r for r in range(n)])
    return torch.stack(got)


def messages(rank, n, x, root):
    return ring(rank, n, x)


REQUESTS = {
    "all_reduce": all_reduce,
    "all_reduce later": all_reduce_later,
    "broadcast": broadcast,
    "all_gather": gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": exchange,
    "messages": messages,
}


def expected(name, rank, given, root):
    """Return what a rank has after a request, by what every rank gave."""
    return {
        "all_reduce": sum(given),
        "all_reduce later": sum(given),
        "broadcast": given[root],
        "all_gather": torch.stack(given),
        "reduce_scatter": sum(given) + len(given) * rank,
        "all_to_all": torch.stack(given) + 100 * rank,
        "messages": given[rank - 1],
    }[name]


def program_of(n, requests, fault, guilty, at):
    def program(rank):
        for i, (name, size, root) in enumerate(requests):
            given = [torch.arange(float(size)) + 10 * r + i for r in range(n)]
            mine = given[rank].clone()
            if (rank, i) != (guilty, at) or fault == "none":
                got = REQUESTS[name](rank, n, mine, root)
                if fault in HARMLESS:
                    assert torch.equal(got, expected(name, rank, given, root)), name
            elif fault == "early end":
                return
            else:
                WRONG[fault](REQUESTS[name], rank, n, mine, root)

    return program


def size(act, rank, n, x, root):
    act(rank, n, torch.cat([x, x]), root)


def dtype(act, rank, n, x, root):
    act(rank, n, x.double(), root)


def another_root(act, rank, n, x, root):
    act(rank, n, x, (root + 1) % n)


def another_reduction(act, rank, n, x, root):
    dist.all_reduce(x, dist.ReduceOp.MAX)


def missing(act, rank, n, x, root):
    """Ask for nothing."""


def extra(act, rank, n, x, root):
    dist.all_reduce(torch.ones(3))
    act(rank, n, x, root)


def before(act, rank, n, x, root):
    raise ValueError("before")


def after(act, rank, n, x, root):
    act(rank, n, x, root)
    raise ValueError("after")


def under_way(act, rank, n, x, root):
    dist.all_reduce(x, async_op=True)
    raise ValueError("under way")


def in_a_hook(act, rank, n, x, root):
    weight = torch.ones(1, requires_grad=True)
    weight.register_hook(fail)
    weight.sum().backward()


def in_a_thread(act, rank, n, x, root):
    """A thread of the user's own that ends with an error is none of the rank's."""
    threading.excepthook, was = (lambda _: None), threading.excepthook
    thread = threading.Thread(target=fail, args=(None,))
    thread.start()
    thread.join()
    threading.excepthook = was
    act(rank, n, x, root)


def of_another_thread(act, rank, n, x, root):
    errors = []

    def communicate():
        try:
            dist.all_reduce(torch.ones(1))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=communicate)
    thread.start()
    thread.join()
    raise errors[0]


def leave(act, rank, n, x, root):
    raise SystemExit(3)


def fail(_):
    raise ValueError("in a hook or a thread")


WRONG = {
    "size": size,
    "dtype": dtype,
    "root": another_root,
    "reduce": another_reduction,
    "missing": missing,
    "extra": extra,
    "exception before": before,
    "exception after": after,
    "exception under way": under_way,
    "exception in a hook": in_a_hook,
    "exception in a thread": in_a_thread,
    "another thread": of_another_thread,
    "exit": leave,
}
FAULTS = ("none", "early end", *WRONG)


def end_of(drawn):
    """How a run ends: None, or what it raises."""
    raised = []

    def run():
        try:
            ThreadRanks(drawn[0]).run(program_of(*drawn))
        except BaseException as error:
            raised.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(LONGEST_S)
    assert not running.is_alive(), f"hangs: {drawn}"
    return raised[0] if raised else None


def hold(seed):
    drawn = draw(seed)
    fault = drawn[2]
    error = end_of(drawn)
    if fault in HARMLESS:
        assert error is None, (drawn, error)
    elif fault == "exit":
        assert isinstance(error, SystemExit), (drawn, error)
    elif error is not None:  # a fault may do no harm: another root of what has none
        assert isinstance(error, RunError), (drawn, error)
        assert len(str(error).splitlines()) == 1, (drawn, error)
    else:
        assert fault in ("root", "reduce", "size", "dtype"), drawn


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_with_each_fault_ends(fault):
    seed = next(s for s in range(1000) if draw(s)[2] == fault)
    hold(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_a_thousand_programs_end(seed):
    hold(seed)


def test_no_thread_of_a_rank_is_left():
    before = threading.active_count()
    for seed in range(5):
        hold(seed)
    assert threading.active_count() == before
