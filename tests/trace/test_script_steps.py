"""A script's steps are timed; without a step, all of it is."""

import torch
import torch.distributed as dist
from torch import nn

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.trace.steps import has_steps, is_whole_script, with_steps


def record(program):
    recording = Recording(2)
    ThreadRanks(2, recording=recording).run(program)
    return recording.trace((("script", "a.py"),))


def talk(rank):
    for _ in range(rank + 1):
        torch.ones(3) * 2
    dist.all_reduce(torch.ones(2))


def test_a_trace_with_steps_stays_as_it_is():
    def program(rank):
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        talk(rank)

    trace = record(program)
    assert has_steps(trace)
    assert with_steps(trace) is trace
    assert not is_whole_script(trace)


def test_without_a_step_all_that_ran_is_the_only_one():
    trace = record(talk)
    whole = with_steps(trace)
    assert not has_steps(trace)
    assert has_steps(whole)
    assert is_whole_script(whole)
    assert dict(whole.meta)["script"] == "a.py"
    for rank in range(2):
        before, after = trace.events_of(rank), whole.events_of(rank)
        assert set(after.step.tolist()) == {1}
        assert (after.name, after.kind.tolist(), after.wait.tolist()) == (
            before.name,
            before.kind.tolist(),
            before.wait.tolist(),
        )
    assert with_steps(whole) is whole


def test_of_nothing_there_is_no_step():
    assert not has_steps(with_steps(record(lambda _: None)))
