"""The longest path through the events of a tape, walked by hand, and the cut of a model into the stages of places."""

from collections import Counter
from typing import Any

import pytest

from emu.model.generate.item import Ask
from emu.model.generate.part import Part
from emu.model.model import EMBEDDING, HEAD, find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.step_paths.megatron_paths import MegatronPaths
from emu.study.planning.step_paths.pytorch_paths import PytorchPaths
from emu.study.planning.step_paths.tape_path import TapePath, times_s
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")


class Known(LeastTimes):
    """Least times of requests by the number of their elements; the second is not final unless it is said."""

    final = False
    asked = 0

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Any:
        """Return the place and the axes."""
        return place, axes

    def collective(self, place: int, ask: Ask) -> LeastTime:
        """Return a tenth of the elements until it has left, and the elements until it is there; more at later places."""
        object.__setattr__(self, "asked", self.asked + 1)
        return LeastTime(ask.elements / 10 + place, ask.elements + place, self.final or ask.elements != 40)


def path() -> TapePath:
    """Return a path of two streams: 1 s, a request, 2 s, a send; 4 s beside them, and 0.5 s after the last two."""
    asks = [(1, Ask("tp", "all_gather", 30, "int8")), (3, Ask("pp", "message", 40, "int8"))]
    ordered, stream = [True, False, True, False, True, True], [0, 0, 0, 0, 1, 0]
    return TapePath([1.0, 0.0, 2.0, 0.0, 4.0, 0.5], asks, {3}, ordered, stream, [[], [0], [1], [2], [], [3, 4]])


@pytest.mark.parametrize("place", [0, 2])
def test_the_longest_path_has_what_a_request_takes_until_it_is_there_and_a_send_until_it_has_left(place: int) -> None:
    least = Known(Rates(1.0, 1.0), Plan())
    assert path().axes == ("tp", "pp")
    assert path().seconds(least, place) == 1 + (30 + place) + 2 + (4 + place) + 0.5
    own = path()
    beside = TapePath([1.0, 0.0, 2.0, 0.0, 90.0, 0.5], own.asks, own.sends, own.ordered, own.stream, own.waits)
    assert beside.seconds(least, 0) == 90.5  # what runs beside takes longer
    in_turn = TapePath([1.0, 0.0, 2.0, 0.0, 9.0, 0.5], own.asks, own.sends, own.ordered, [0] * 6, own.waits)
    assert in_turn.seconds(least, 0) == 1 + 30 + 2 + 9 + 0.5  # on one stream it begins when the 2 s are over, as the send does
    assert TapePath([1.0, 2.0], [], (), [False, True], [0, 0], [[], []]).seconds(least, 0) == 2.0
    assert TapePath([3.0, 2.0], [], (), [True, False], [0, 0], [[], []]).seconds(least, 0) == 2.0  # to the last event


def test_a_length_is_kept_only_once_all_of_its_times_are_final() -> None:
    own, least = path(), Known(Rates(1.0, 1.0), Plan())
    for asked in (2, 4):
        own.seconds(least, 0)
        assert least.asked == asked
    object.__setattr__(least, "final", True)
    for asked in (6, 6):
        own.seconds(least, 0)
        assert least.asked == asked
    own.seconds(least, 1)
    assert least.asked == 8
    other = path()
    assert times_s([own, other, own], least, 1) == [own.seconds(least, 1)] * 3
    assert least.asked == 10


@pytest.mark.parametrize(
    ("words", "stages", "layers", "holds"),
    [
        ("pp=3,layers=2,5,1,microbatch=1", [[0], [1], [2]], [[2], [5], [1]], 3),
        ("pp=2,vp=2,layers=3,1,2,2,microbatch=1", [[0, 2], [1, 3]], [[3, 2], [1, 2]], 2),
        ("pp=4,layers=1,3,3,1,microbatch=1", [[0], [1], [2], [3]], [[1], [3], [3], [1]], 3),
    ],
)
def test_a_cut_has_the_stages_and_the_parts_of_each_place_and_equal_places_are_of_one_kind(
    words: str, stages: list[list[int]], layers: list[list[int]], holds: int
) -> None:
    model, plan = find_model("llama-tiny"), parse_plan(words, global_batch=12, seq=64)
    paths = MegatronPaths(model, Stack(MEGATRON), H100)
    cut, last = paths.cut(plan), plan.stages - 1
    assert paths.names == (EMBEDDING, "dense", HEAD)
    assert cut.stages.tolist() == stages
    expected = [[[int(s == 0), n, int(s == last)] for s, n in zip(*of, strict=True)] for of in zip(stages, layers, strict=True)]
    assert cut.counts.tolist() == expected
    assert [cut.held[kind].tolist() for kind in cut.holds] == [[sum(of) for of in zip(*own, strict=True)] for own in expected]
    assert len(set(cut.holds)) == len(cut.held) == holds


def test_a_rank_holds_the_parameters_of_all_of_its_parts_by_the_axis_of_their_copies() -> None:
    """Experts have copies on edp, of 8 / (2 * 2) ranks, and all other parameters on dp of 4."""
    model, plan = find_model("gpt-moe-tiny"), parse_plan("tp=2,ep=2,dp=4", global_batch=8, seq=64)
    parts = {EMBEDDING: 1, "dense": 3, "sparse": 2, HEAD: 0}
    megatron, pytorch = MegatronPaths(model, Stack(MEGATRON), H100), PytorchPaths(model, Stack(PYTORCH), H100)
    sizes = {name: sum(o.parameters for o in Part(model, plan, Stack(PYTORCH), name).operators) for name in parts}
    assert pytorch.held(plan, parts) == (("dp", 4, sum(n * sizes[name] for name, n in parts.items())),)
    found = {axis: (ranks, size) for axis, ranks, size in megatron.held(plan, parts)}
    assert {axis: ranks for axis, (ranks, _) in found.items()} == {"dp": 4, "edp": 2}
    own = Counter[str]()
    for name, n in parts.items():
        own.update({axis: n * size for axis, size in megatron.elements(plan, name).items()})
    assert {axis: size for axis, (_, size) in found.items()} == own
    assert sum(own.values()) == sum(n * sizes[name] for name, n in parts.items())
