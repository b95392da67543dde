"""The events of a role are written down one by one or again by the stretch, and it does not matter which."""

from collections import Counter

import pytest

from emu.model.generate.generate import generate, roles_by_place
from emu.model.generate.tape import Tape
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack


@pytest.mark.parametrize(
    "words",
    [
        "tp=2,microbatch=2",
        "dp=2,sharding=fsdp,microbatch=1",
        "dp=4,sharding=fsdp,shard=2,microbatch=1,recompute=full",
        "pp=3,tp=2,sp,dp=2",
        "pp=3,order=gpipe,tp=2",
        "pp=3,vp=2,dp=2",
    ],
)
def test_a_stretch_written_down_again_is_what_it_would_be_anew(words, monkeypatch):
    model, plan = MODELS.find("llama-small"), parse_plan(words, global_batch=24, seq=16)
    again = generate(model, plan, Stack())
    written = []
    monkeypatch.setattr(Tape, "write_or_copy", lambda *given: written.append(given[2]()))
    assert generate(model, plan, Stack()).digest() == again.digest()
    assert len(written) > 9


def test_more_microbatches_of_405b_add_one_by_one_only_their_messages_between_stages(monkeypatch):
    """64 or 128 through 16 stages: each stage's passes are worked out a few times and written down again as columns."""
    model, add = MODELS.find("llama3.1-405b"), Tape._add
    worked_out: Counter[int] = Counter()
    for batch in (1024, 2048):
        plan = parse_plan("tp=8,sp,pp=16,dp=16,layers=7,8x14,7,clip=0", global_batch=batch, seq=8192, microbatch=1)
        monkeypatch.setattr(Tape, "_add", lambda *given, of=batch: (worked_out.update([of]), add(*given))[1])
        tapes = [of_place[0].tape for of_place in roles_by_place(model, plan, Stack())]
        asked = sum(int((tape.events().group == tape.axes["tp"]).sum()) for tape in tapes)
        of_layers = (8 + 2) * model.layers * plan.passes  # with those of the gradients of its two norms
        ends = (5 + 1) * plan.passes  # the words looked up; what the head takes in, its logits, and their gradients
        assert asked == of_layers + ends
    between = 2 * 64 * 2 * (16 - 1)  # there and back of 64 microbatches more, each sent and received
    assert worked_out[2048] - worked_out[1024] == between
