"""A rank's memory at its peak is told by what it is for: by hand, and against an account that remembers everything."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank import rank_memory
from emu.backend.rank.operator_counter import OperatorCounter, track
from emu.backend.rank.rank_memory import GRADIENTS, OPTIMIZER, WEIGHTS, Memory
from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.trace.trace import PARTS

WIDTH = 64
LAYER = 4 * WIDTH * WIDTH


def recorded(program, n=1):
    recording = Recording(n)
    ThreadRanks(n, recording=recording).run(program)
    (parts,) = recording.trace().peak_by_part.tolist()
    return dict(zip(PARTS, parts, strict=True))


def train(module, make, steps=3):
    optimizer = make(module.parameters())
    for _ in range(steps):
        module(torch.ones(8, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def layers():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU(), nn.Linear(WIDTH, WIDTH, bias=False))


def test_adam_keeps_two_numbers_a_weight_and_one_for_each_tensor():
    found = recorded(lambda _: train(layers(), lambda of: torch.optim.AdamW(of, fused=True)))
    assert (found["weights"], found["gradients"]) == (2 * LAYER, 2 * LAYER)
    assert found["optimizer_state"] == 2 * 2 * LAYER + 2 * 4
    assert 0 < found["activations"] < LAYER


def test_plain_descent_keeps_nothing_and_without_a_step_no_gradient_is_known():
    assert recorded(lambda _: train(layers(), torch.optim.SGD))["optimizer_state"] == 0
    found = recorded(lambda _: layers()(torch.ones(8, WIDTH)).sum().backward())
    assert (found["weights"], found["gradients"], found["optimizer_state"]) == (2 * LAYER, 0, 0)
    assert found["activations"] >= LAYER


def test_what_an_optimizer_keeps_later_is_known_too():
    """The second layer has its first gradient in the second step."""

    def program(_):
        first, second = layers()[0], layers()[0]
        optimizer = torch.optim.AdamW([first.weight, second.weight], fused=True)
        for step in range(3):
            out = first(torch.ones(8, WIDTH))
            (second(out) if step else out).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert recorded(program)["optimizer_state"] == 2 * 2 * LAYER + 2 * 4


def test_gradients_that_live_in_the_buckets_of_ddp_are_gradients():
    def program(_):
        module = DistributedDataParallel(layers(), gradient_as_bucket_view=True)
        train(module, torch.optim.SGD)

    found = recorded(program, 2)
    assert found["weights"] == 2 * LAYER
    assert found["gradients"] >= 2 * LAYER


def test_buffers_count_with_the_weights():
    norm = recorded(lambda _: nn.BatchNorm1d(WIDTH)(torch.ones(2, WIDTH)))
    assert norm["weights"] == 4 * 4 * WIDTH + 8  # scale, shift, mean, variance, and how many batches


def test_a_module_may_call_things_of_its_own_parameters_and_buffers():
    class Own(nn.Linear):
        parameters, buffers = "of another kind", ()

    assert recorded(lambda _: Own(WIDTH, WIDTH)(torch.ones(8, WIDTH)))["weights"] == LAYER + 4 * WIDTH


def test_what_was_made_uncounted_is_weights_when_it_is_tracked():
    held = torch.ones(100)
    count = OperatorCounter(lambda _: None)
    with count:
        track([held])
        made = held + 1
        assert count.memory.peak_by_part() == (400, 0, 0, 400)
    del made


def test_what_wraps_a_collective_that_is_not_waited_for_yet_takes_nothing():
    with OperatorCounter(lambda _: None) as count:
        came = torch.ones(1000)
        wrapped = torch.ops._c10d_functional._wrap_tensor_autograd(came)
        assert isinstance(wrapped, AsyncCollectiveTensor)
        assert count.memory.live_bytes == 4000


def test_nothing_is_left_behind():
    recorded(lambda _: train(layers(), torch.optim.SGD))
    assert not nn.modules.module._global_forward_hooks


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_are_those_of_what_lived_when_there_was_most(seed, monkeypatch):
    """Storages come, grow, shrink and go; what some are for is said at any time, often after the peak."""
    monkeypatch.setattr(rank_memory, "_FEW", int(np.random.default_rng(seed).choice([3, 10, 4096])))
    rng, kept = np.random.default_rng(seed), Memory()
    alive, parts, sizes, most, lived = {}, {}, {}, 0, {}
    for number in range(300):
        what = rng.choice(["hold", "hold", "resize", "drop", "mark"])
        if what == "hold":
            alive[number] = torch.UntypedStorage(int(rng.integers(0, 100)))
            kept.hold(alive[number])
        elif alive:
            chosen = int(rng.choice(list(alive)))
            if what == "resize":
                alive[chosen].resize_(int(rng.integers(0, 100)))
                kept.resized(alive[chosen])
            elif what == "drop":
                del alive[chosen]
            else:
                part = int(rng.choice([WEIGHTS, GRADIENTS, OPTIMIZER]))
                parts.setdefault(chosen, part)
                kept.mark(alive[chosen], part)
        sizes = {name: storage.nbytes() for name, storage in alive.items()}
        if sum(sizes.values()) > most:
            most, lived = sum(sizes.values()), sizes
    expected = [sum(size for name, size in lived.items() if parts.get(name, 3) == part) for part in range(4)]
    assert (kept.peak_bytes, kept.live_bytes) == (most, sum(sizes.values()))
    assert list(kept.peak_by_part()) == expected
