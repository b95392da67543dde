"""An optimizer inside another, as ZeRO's, ends no step of its own."""

import torch

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.trace.trace import UPDATE, Kind


class Outer(torch.optim.SGD):
    """Lets another do the work, and then does something more."""

    def step(self, closure=None):
        self.inner.step()
        return super().step(closure)


def trained(rank):
    layer = torch.nn.Linear(3, 1)
    outer = Outer(layer.parameters(), lr=0.1)
    outer.inner = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.ones(2, 3)).sum().backward()
        outer.step()
        outer.zero_grad()


def test_a_step_ends_and_its_update_begins_with_the_outermost_optimizer():
    _, trace = LocalCluster().run_traced(1, Choice.parse(()), trained)
    (events,) = trace.events
    marks = [i for i, kind in enumerate(events.kind) if kind == Kind.MARK]
    assert [(events.name[i], events.step[i]) for i in marks] == [(name, n) for n in (1, 2, 3) for name in (UPDATE, "step")]
    updates = [events.name[i] for i in range(*marks[2:4])].count("aten.add_")
    assert updates == 2 * 2  # of two parameters by two optimizers
