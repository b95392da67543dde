"""The events of a role are written down one by one or again by the stretch, and it does not matter which."""

import time

import pytest

from emu.model.generate.generate import generate, roles_by_place
from emu.model.generate.tape import Tape
from emu.model.model import MODELS
from emu.model.plan.spell import parse_plan
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
    monkeypatch.setattr(Tape, "again", lambda *given: written.append(given[2]()))
    assert generate(model, plan, Stack()).digest() == again.digest()
    assert len(written) > 9


def test_a_step_of_a_pipeline_of_405b_is_made_in_two_seconds():
    """128 microbatches through 16 stages: each stage's passes are worked out a few times and written down as columns."""
    model = MODELS.find("llama3.1-405b")
    plan = parse_plan("tp=8,sp,pp=16,dp=16,layers=7,8x14,7,clip=0", global_batch=2048, seq=8192, microbatch=1)
    began = time.process_time()
    tapes = [of_place[0].tape for of_place in roles_by_place(model, plan, Stack())]
    events = [tape.events() for tape in tapes]
    assert time.process_time() - began < 2
    of_layers = (8 + 2) * model.layers * plan.passes  # with those of the gradients of its two norms
    ends = (5 + 1) * plan.passes  # the words looked up; what the head takes in, its logits, and their gradients
    assert sum(int((e.group == tape.axes["tp"]).sum()) for e, tape in zip(events, tapes, strict=True)) == of_layers + ends
