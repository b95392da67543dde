"""The bytes that live during passes through stages of known sizes, at each moment, worked out by hand."""

from types import SimpleNamespace

import pytest

from emu.model.memory.layer_memory import GATHERS, REDUCES, Ledger, LiveBytes, Pools
from emu.model.memory.pass_memory import (
    ENTER,
    ENTER_AGAIN,
    ENTER_BACKWARD,
    LEAVE,
    LEAVE_BACKWARD,
    LOSS_GRADIENT,
    BackwardMemory,
    StageMemory,
)
from emu.model.model import HEAD
from emu.model.operator import LOOKUP, LOSS, NORM, PRODUCT


class Seen(Ledger):
    """A ledger that keeps the sum of all bytes of each moment; it begins with 100 of activations."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.change(activations=100)
        self.seen.clear()

    def _see(self, lives, pools):
        super()._see(lives, pools)
        self.seen.append(sum(lives))


def operator(kind, saved, beside, given, made, **more):
    """An operator with the bytes that its layer has of it."""
    usual = {"waits": made, "whole": 0, "gradient": 0, "partial": False, "tied": False, "travels": False}
    return SimpleNamespace(
        kind=kind, saved=saved, beside=beside, given=given, made=made, **(usual | {"cut": "", "experts": 0} | more)
    )


def layer(*operators, name="dense", **more):
    """A layer of such operators."""
    own = {"kept": 30, "between": 4, "again": 0, "travelling": 3, "recomputed": False, "routed": None, "logits": 0, "scored": 0}
    asked = {
        name: lambda op, name=name: getattr(op, name) for name in ("beside", "given", "waits", "partial", "travels", "whole")
    }
    return SimpleNamespace(
        name=name, is_layer=name == "dense", operators=operators, saved=tuple(op.saved for op in operators), backwards={},
        made_bytes=lambda op: op.made, gradient=lambda op: op.gradient, sums_tied=lambda op: op.tied,
        plan=SimpleNamespace(splits=False), has_dtensors=more.pop("has_dtensors", False), **asked, **(own | more),
    )  # fmt: skip


def three(**more):
    """A layer that is recomputed."""
    a, b, c = operator(NORM, 4, 6, 1, 3), operator(PRODUCT, 5, 20, 2, 7, waits=9), operator("sum", 6, 8, 0, 0)
    return layer(a, b, c, again=11, recomputed=True, **more)


def head():
    last = operator(PRODUCT, 8, 50, 3, 2, partial=True)
    return layer(operator(NORM, 9, 5, 2, 1), last, name=HEAD, kept=40, travelling=0, logits=6, scored=10)


def test_the_peak_is_the_first_of_the_largest_moments_and_each_pool_has_its_own():
    ledger = Ledger()
    ledger.change(weights=5, pool=GATHERS)
    ledger.change(gradients=3, pool=REDUCES)
    ledger.change(weights=-5, pool=GATHERS)
    ledger.change(activations=5)
    assert (ledger.now, ledger.peak) == (LiveBytes(0, 3, 5), LiveBytes(5, 3, 0))
    assert (ledger.pools, ledger.reserved) == (Pools(5, 0, 3), Pools(5, 5, 3))
    ledger.rise(gradients=1, activations=2)
    assert (ledger.now, ledger.peak) == (LiveBytes(0, 3, 5), LiveBytes(0, 4, 7))
    assert (ledger.pools, ledger.reserved) == (Pools(5, 0, 3), Pools(8, 5, 3))


def test_what_is_appended_happens_beside_what_lives_already():
    ledger, other = Ledger(), Ledger()
    ledger.change(gradients=3, activations=5)
    other.change(activations=10)
    other.change(weights=2, pool=GATHERS)
    other.change(gradients=2, activations=-9)
    ledger.append(other)
    assert (ledger.now, ledger.peak) == (LiveBytes(2, 5, 6), LiveBytes(2, 3, 15))
    assert (ledger.pools, ledger.reserved) == (Pools(11, 2, 0), Pools(18, 2, 0))
    rising = Ledger()
    rising.change(activations=50)
    ledger.append(rising)
    assert ledger.peak == LiveBytes(2, 5, 56)


@pytest.mark.parametrize("travels", [False, True])
def test_a_forward_keeps_its_bytes_and_has_what_lies_between_layers_twice_beside_them(travels):
    """Experts come and go with their block where their weights are sharded."""
    other = layer(operator(PRODUCT, 1, 1, 1, 1), operator(PRODUCT, 1, 1, 1, 1, travels=travels))
    for scatters in (False, True):
        stage, ledger = StageMemory((head(), other), gives=7, scatters=scatters), Seen()
        assert [*stage.forward(1, ledger)] == [ENTER, LEAVE] * (scatters and travels)
        assert ledger.seen == [130, 138]
        stage.end_forward(ledger)
        assert ledger.now == LiveBytes(0, 0, 137)


def test_the_first_half_of_a_split_backward_keeps_gradients_of_outputs_and_frees_what_is_recomputed():
    ledger = Seen()
    StageMemory((three(), head()), gives=9, taken=7, buffered=2).backward_input(ledger)
    of_head = [100, 100, 150, 103, 108, 105, 105]
    assert ledger.seen == [*of_head, 116, 123, 124, 110, 130, 107, 113, 104, 108, 97]


@pytest.mark.parametrize(
    ("first", "seen", "gradients"),
    [
        (True, [111, 115, 112, 122, 129, 119, 119, 119, 122, 116, 118, 107, 46], 11),
        (False, [111, 115, 109, 119, 126, 107, 107, 107, 110, 103, 105, 92, 31], 0),
    ],
)
def test_the_second_half_of_a_split_backward_makes_gradients_of_weights_and_frees_the_rest(first, seen, gradients):
    """A recomputed layer lives again for each operator with parameters; of a gradient that waits all lives until the end."""
    ledger = Seen()
    StageMemory((three(), head()), gives=9, taken=7, buffered=2).backward_weight(ledger, first=first)
    assert ledger.seen == seen
    assert ledger.now.gradients == gradients


@pytest.mark.parametrize(
    ("first", "dtensors", "seen", "late"),
    [
        (True, False, [111, 118, 119, 105, 132, 109, 118, 108], 0),
        (False, False, [111, 118, 119, 105, 132, 100, 109, 96], 0),
        (False, True, [111, 118, 119, 105, 132, 109, 118, 108], 12),
    ],
)
def test_a_backward_frees_what_each_operator_saved_and_keeps_gradients_where_they_are_made(first, dtensors, seen, late):
    """Gradients of DTensors are added to others only as the backward ends."""
    ledger, stage = Seen(), StageMemory((three(has_dtensors=dtensors),), gives=9)
    memory = BackwardMemory(stage, ledger, first=first, last=False)
    assert [*memory._operators(stage.layers[0])] == []
    assert (ledger.seen, memory.late) == (seen, late)
    memory.end()
    assert ledger.seen[-1] == seen[-1] - late - (30 + 11 - 15) - 9


@pytest.mark.parametrize(("first", "dtensors"), [(True, False), (False, True), (False, False)])
def test_equal_layers_of_a_stage_go_by_as_if_each_were_counted(first, dtensors):
    one, alone = three(has_dtensors=dtensors), Seen()
    every = BackwardMemory(StageMemory((one, one)), alone, first=first, last=False)
    for place in (1, 0):
        assert [*every._operators(every.stage.layers[place])] == []
    ledger = Seen()
    memory = BackwardMemory(StageMemory((one, one)), ledger, first=first, last=False)
    for place in (1, 0):
        assert [*memory.layer(place)] == []
    assert (ledger.now, ledger.peak, memory.late) == (alone.now, alone.peak, every.late)


@pytest.mark.parametrize(
    ("more", "before", "seen", "late"),
    [
        ({"tied": True, "waits": 20}, 12, [100, 194, 88, 148, 88], 0),
        ({"tied": True, "waits": 40}, 0, [100, 144, 100, 140, 100], 0),
        ({"waits": 20}, 12, [100, 144, 88, 148, 108], 20),
    ],
)
def test_the_gradient_of_a_whole_table_lives_after_all_others_have_been_added(more, before, seen, late):
    """If its table is tied and another gradient waits, both and their sum live at once."""
    table = operator(LOOKUP, 0, 44, 0, 20, whole=40, gradient=25, cut="out", **more)
    ledger, one = Seen(), layer(table, has_dtensors=True, name="embedding")
    memory = BackwardMemory(StageMemory((one,)), ledger, first=False, last=False, late=before)
    assert [*memory.layer(0)] == []
    assert (ledger.seen, memory.late) == (seen, late)


@pytest.mark.parametrize(
    ("stage", "last", "seen"),
    [
        ({}, False, [100, 127, 102]),
        ({}, True, [100, 127, 102, 109]),
        ({"adds": True}, False, [100, 127, 95]),
        ({"scatters": True}, True, [100, 127, 102]),
    ],
)
def test_gradients_of_experts_lie_in_a_bucket_after_the_last_backward_unless_they_are_scattered(stage, last, seen):
    expert = operator(PRODUCT, 5, 20, 2, 7, experts=4, travels=True)
    ledger, one = Seen(), layer(expert, routed="rows")
    memory = BackwardMemory(StageMemory((one,), **stage), ledger, first=True, last=last)
    assert len([*memory._operators(one)]) == 2 * ("scatters" in stage)
    assert ledger.seen == seen


def test_moments_of_a_backward_come_where_experts_begin_and_end_and_after_the_loss():
    first, second = (operator(PRODUCT, 5, 20, 2, 7, travels=True) for _ in range(2))
    one = layer(operator(PRODUCT, 1, 2, 3, 4), first, second, operator(LOSS, 10, 20, 0, 0), again=11, recomputed=True)
    ledger = Seen()
    memory = BackwardMemory(StageMemory((one,), scatters=True), ledger, first=True, last=False)
    moments = [(moment, sum(ledger.now)) for moment in memory._operators(one)]
    assert moments == [(ENTER_AGAIN, 111), (LOSS_GRADIENT, 101), (ENTER_BACKWARD, 101), (LEAVE_BACKWARD, 105)]
