"""The request of a chooser: the NPUs of a request's ranks, its root, its bytes, and how many groups ask at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.arrays import I64
from emu.collective.choice import AlgorithmOnDims, Request
from emu.errors import InputError
from emu.study.choice import axis_synthesis, chooser, synthesis_choice
from emu.study.choice.chooser import ChooserOnNpus, made_beside, made_where_faster
from emu.study.choice.site import Requirement, Selection, Site
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

NPUS: I64 = np.array([5, 4, 3, 2, 1, 0])
GROUPS: I64 = np.array([[0, 3], [1, 4], [2, 5]])  # of ranks
ASKED = Request("broadcast", (1, 4), 1, 700, "float32", 9, "dp")
WANTED = Requirement("broadcast", 1, 700, 2, groups=9)  # float32 is timed as a dtype of 2 bytes
SERVED = AlgorithmOnDims("ring")
ON_GROUPS = ((3, 0), (4, 1), (5, 2))  # the NPUs of these ranks, in order


def plain() -> Topology:
    """Return a topology of which nothing is known yet, and that declares no symmetry."""
    return replace(build_topology("torus:dims=2x3,bandwidth=50GB/s,latency=1us"), symmetry=None)


@pytest.fixture
def topology() -> Topology:
    """Give such a topology."""
    return plain()


def on(topology: Topology, name: str = "auto", groups: Any = None, **words: Any) -> ChooserOnNpus:
    """Return a chooser of a name."""
    return ChooserOnNpus(topology, "bfloat16", npus=NPUS, name=name, groups=groups, **words)


@pytest.mark.parametrize(
    ("name", "room", "function"),
    [
        ("auto", chooser, "fastest"),
        ("synthesized", synthesis_choice, "made_algorithm"),
        ("auto+synthesized", synthesis_choice, "faster_algorithm"),
    ],
)
def test_a_request_alone_is_served_at_the_site_of_its_npus(
    name: str, room: Any, function: str, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    found = Selection(SERVED) if name == "auto" else SERVED
    monkeypatch.setattr(room, function, lambda *of: asked.append(of) or found)
    assert on(topology, name)(ASKED) == SERVED
    assert asked == [(Site.of(topology, (4, 1)), WANTED)]
    assert on(topology, name, asked=frozenset({"reduce", "tp.broadcast"}))(ASKED) is None
    other = on(topology, name, asked=frozenset({"reduce"}), otherwise=lambda request: request.axis)
    assert other(ASKED) == "dp"
    assert on(topology, name, asked=frozenset({"dp.broadcast"}))(ASKED) == SERVED


@pytest.mark.parametrize("name", ["synthesized", "auto+synthesized"])
def test_where_the_groups_of_its_axis_are_known_a_request_is_served_with_all_of_them(
    name: str, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, axes = list[Any](), list[str]()
    monkeypatch.setattr(axis_synthesis, "algorithms_together", lambda *of: asked.append(of) or {(4, 1): SERVED})
    own = on(topology, name, groups=lambda axis: axes.append(axis) or GROUPS)
    assert own(ASKED) == SERVED
    assert own(ASKED._replace(ranks=(0, 3))) is None  # of the same result, in which it has none
    assert asked == [(topology, ON_GROUPS, WANTED, name)]
    assert set(axes) == {"dp"}


ALONE = AlgorithmOnDims("direct")


@pytest.mark.parametrize(
    ("request_", "groups", "name", "alone"),
    [
        (ASKED, GROUPS, "synthesized", False),
        (ASKED._replace(axis=""), GROUPS, "synthesized", True),
        (ASKED._replace(elements=0), GROUPS, "synthesized", True),
        (ASKED._replace(ranks=(4, 1)), GROUPS, "synthesized", True),  # no group of the axis
        (ASKED, GROUPS[1:2], "synthesized", True),  # the only one
        (ASKED, GROUPS[:2], "synthesized", False),
        (ASKED, np.tile(GROUPS[1], (64, 1)), "synthesized", False),
        (ASKED, np.tile(GROUPS[1], (65, 1)), "synthesized", True),
        (ASKED, GROUPS, "auto", True),
    ],
)
def test_schedules_are_made_together_for_several_known_groups_but_not_too_many(
    request_: Request, groups: I64, name: str, alone: bool, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(axis_synthesis, "algorithms_together", lambda *_: {(4, 1): SERVED})
    monkeypatch.setattr(synthesis_choice, "made_algorithm", lambda *_: ALONE)
    monkeypatch.setattr(chooser, "fastest", lambda *_: Selection(ALONE))
    assert on(topology, name, groups=lambda _: groups)(request_) == (ALONE if alone else SERVED)


@pytest.mark.parametrize("known", [True, False])
def test_on_what_others_leave_a_schedule_is_made_for_the_groups_of_the_axis_or_for_the_group_alone(
    known: bool, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, left = list[Any](), plain()
    monkeypatch.setattr(axis_synthesis, "algorithms_beside", lambda *of: asked.append(of) or {(4, 1): SERVED})
    own = on(topology, "synthesized", groups=(lambda _: GROUPS) if known else None)
    assert own.made_on(left, ASKED) == SERVED
    [(whole, rest, groups, wanted)] = asked
    assert (whole is topology, rest is left, groups) == (True, True, ON_GROUPS if known else ((4, 1),))
    assert wanted[:4] == WANTED[:4]


def test_choosers_of_made_schedules_choose_nothing_where_none_can_be_made(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise InputError("no")

    own = on(topology, "auto+synthesized", asked=frozenset({"broadcast"}))
    beside, faster = made_beside(own, {"dp": plain(), "tp": None}.get), made_where_faster(own)
    assert beside is not None
    assert faster is not None
    monkeypatch.setattr(axis_synthesis, "algorithms_beside", lambda *_: {(4, 1): SERVED})
    monkeypatch.setattr(synthesis_choice, "made_algorithm", lambda *_: SERVED)
    assert (beside(ASKED), faster(ASKED)) == (SERVED, SERVED)
    assert (beside(ASKED._replace(axis="tp")), faster(ASKED._replace(operation="reduce"))) == (None, None)
    assert beside(ASKED._replace(operation="reduce")) is None
    monkeypatch.setattr(axis_synthesis, "algorithms_beside", refused)
    monkeypatch.setattr(synthesis_choice, "made_algorithm", refused)
    assert (beside(ASKED._replace(elements=701)), faster(ASKED._replace(elements=701))) == (None, None)
