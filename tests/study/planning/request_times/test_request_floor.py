"""The least time of a request: roots, communicators and algorithms that are tried, by times made by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.generate.item import Ask
from emu.study.planning.request_times import request_floor as room
from emu.study.planning.request_times.placed_groups import Groups
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.request_times.request_floor import BoundedRequest, _Fabric, _floor_s, least_request_time
from emu.topology.catalogue import build_topology
from emu.trace.matching.role_requests import MESSAGE

SWITCH = build_topology("switch:n=8,bandwidth=50GB/s,latency=1us")
RATES = Rates(4.0, 2.0, 3.0)


def groups(members: int = 3, numbers: int = 1) -> Groups:
    """Return two groups, of which the first chooses."""
    npus = np.arange(2 * members).reshape(2, members)
    return Groups(npus, npus[:1], numbers, RATES, "its name")


def test_a_request_of_a_step_has_the_bytes_of_its_elements_and_a_message_has_no_elements() -> None:
    own = groups()
    found = BoundedRequest(Ask("dp", "all_to_all", 6, "bfloat16", splits=(1, 2, 3)), own, "dp").as_distinct(5)
    assert (found.axis, found.axis_name, found.name, found.dtype, found.root) == (5, "dp", "all_to_all", "bfloat16", 0)
    assert (found.size_bytes, found.elements, found.splits) == (12, 6, (1, 2, 3))
    assert (found.ranks is own.npus, found.choosing is own.choosing) == (True, True)
    message = BoundedRequest(Ask("pp", MESSAGE, 6, "float32"), own).as_distinct(0)
    assert (message.size_bytes, message.elements, message.axis_name) == (24, 0, "")


@pytest.mark.parametrize(("members", "roots"), [(3, range(3)), (16, range(16)), (17, None)])
def test_of_up_to_sixteen_members_each_is_tried_as_root_where_there_is_one(members: int, roots: range | None) -> None:
    assert BoundedRequest(Ask("dp", "broadcast", 6, "int8"), groups(members)).roots == roots
    assert BoundedRequest(Ask("dp", "all_reduce", 6, "int8"), groups(members)).roots == range(1)


def test_the_least_of_all_roots_and_communicators_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()
    left, delivered = (9.0, 4.0, 8.0, 7.0, 6.0, 5.0), (5.0, 9.0, 7.0, 3.0, 8.0, 6.0)

    def least(asked: Any, fabric: _Fabric) -> LeastTime:
        seen.append((asked.axis, asked.root))
        assert (fabric.launch_fs, fabric.rates, fabric.npus.tolist()) == (77, RATES, list(range(8)))
        return LeastTime(left[len(seen) - 1], delivered[len(seen) - 1])

    monkeypatch.setattr(room, "_least_over_algorithms", least)
    asked = BoundedRequest(Ask("dp", "broadcast", 6, "int8"), groups(3, numbers=2))
    assert least_request_time(asked, SWITCH, ("auto",), 77) == LeastTime(4.0, 3.0)
    assert seen == [(number, root) for number in (0, 1) for root in range(3)]
    many = BoundedRequest(Ask("dp", "broadcast", 6, "int8"), groups(17))
    assert least_request_time(many, SWITCH, ("auto",), 77) == LeastTime(0.0, 0.0)
    assert len(seen) == 6


class Fabric(_Fabric):
    """A fabric on which an algorithm, or `now`, takes known seconds; it is served by the one that it is named after."""

    def __init__(self, times_s: dict[str, float], served: str = "now", messages: dict[str, str] | None = None) -> None:
        self.__dict__.update({"times_s": times_s, "served": served, "messages": messages or {}, "seen": list[str]()})
        self.__dict__.update({"choice": Choice(), "rates": RATES, "launch_fs": 10**15})

    def parts(self, asked: Any) -> Any:
        """Return what an algorithm sends, which is its name but for those that send the same."""
        name = self.served  # type: ignore[attr-defined]
        if name == "unfit":
            raise InputError("it fits no group")
        return [SimpleNamespace(what=self.messages.get(name, name))]  # type: ignore[attr-defined]

    def laid(self, parts: Any) -> Any:
        """Return the same."""
        return parts

    def fewest(self, asked: Any) -> Any:
        """Return the request."""
        return asked

    def least(self, asked: Any, laid: Any) -> LeastTime:
        """Return the known time of what is sent."""
        self.seen.append(laid[0].what)  # type: ignore[attr-defined]
        return LeastTime(0.0, self.times_s[laid[0].what])  # type: ignore[attr-defined]

    def served_by(self, asked: Any, option: Any) -> Any:
        """Return the fabric by another algorithm."""
        own = Fabric(self.times_s, option, self.messages)  # type: ignore[attr-defined]
        own.__dict__["seen"] = self.seen  # type: ignore[attr-defined]
        return own


def distinct(name: str = "all_gather", n_groups: int = 1, **of: Any) -> Any:
    """Return a request of 12 elements of 2 bytes; a rank of three moves 16 bytes, and enters it in 1 s: 3 + 16 / 4 + 1 s."""
    request = BoundedRequest(Ask("dp", name, 12, "bfloat16", **of), groups()).as_distinct(0)
    ranks = np.arange(3 * n_groups).reshape(n_groups, 3)
    return room.replace(request, ranks=ranks, choosing=ranks[:1])


def tried(
    own: Fabric, asked: Any, monkeypatch: pytest.MonkeyPatch, *, free: bool = True, made: bool = False, tasks: int = 1
) -> Any:
    """Return the least time of a request that has so many messages, for algorithms a to d and one that does not fit."""
    monkeypatch.setattr(room, "is_free", lambda *_: free)
    monkeypatch.setattr(room, "is_made", lambda *_: made)
    monkeypatch.setattr(room, "_options", lambda *_: iter(["a", "unfit", "b", "c", "d"]))
    monkeypatch.setattr(room, "group_message_count", lambda _: tasks)
    return room._least_over_algorithms(asked, own).delivered_s


@pytest.mark.parametrize(
    ("times_s", "least_s", "seen"),
    [
        ({"now": 20.0, "a": 15.0, "b": 12.0, "c": 13.0, "d": 14.0}, 12.0, "now a b c d"),
        ({"now": 20.0, "a": 15.0, "b": 8.24, "c": 3.0, "d": 2.0}, 8.0, "now a b"),  # within 3 % of 8 s: no other is tried
        ({"now": 20.0, "a": 15.0, "b": 8.25, "c": 3.0, "d": 2.0}, 3.0, "now a b c"),
        ({"now": 7.5, "a": 1.0}, 7.5, "now"),
    ],
)
def test_algorithms_are_tried_until_one_is_near_what_any_rank_must_move(
    times_s: dict[str, float], least_s: float, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Fabric(times_s)
    assert tried(own, distinct(), monkeypatch) == least_s
    assert own.seen == seen.split()  # type: ignore[attr-defined]


def test_algorithms_that_send_the_same_are_timed_once_and_of_one_that_is_named_no_other_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_s = {"now": 20.0, "b": 12.0, "d": 14.0}
    same = Fabric(times_s, messages={"a": "now", "c": "b"})
    assert tried(same, distinct(), monkeypatch) == 12.0
    assert same.seen == ["now", "b", "d"]  # type: ignore[attr-defined]
    named = Fabric(times_s)
    assert (tried(named, distinct(), monkeypatch, free=False), named.seen) == (20.0, ["now"])  # type: ignore[attr-defined]
    made = Fabric(times_s)
    assert (tried(made, distinct(), monkeypatch, made=True), made.seen) == (8.0, [])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("tasks", "least_s", "seen"), [(2**15, 12.0, 5), (2**15 + 1, 8.0, 1)])
def test_a_request_of_many_messages_is_bounded_by_what_any_rank_must_move(
    tasks: int, least_s: float, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Fabric({"now": 20.0, "a": 15.0, "b": 12.0, "c": 13.0, "d": 14.0})
    assert (tried(own, distinct(), monkeypatch, tasks=tasks), len(own.seen)) == (least_s, seen)  # type: ignore[attr-defined]
    several = Fabric({"now": 20.0})  # of several groups the first that chooses counts, if it is named
    assert tried(several, distinct(n_groups=4), monkeypatch, tasks=tasks, free=False) == 20.0


@pytest.mark.parametrize(
    ("asked", "least_s"),
    [
        (distinct(), 3 + (24 - 8) / 4 + 1),
        (distinct("all_reduce"), 3 + 24 / 4 + 1),
        (distinct("all_to_all", splits=(1, 2, 9)), 0 + 1),  # a rank may have the largest block itself
        (distinct("broadcast"), 0 + 1),
    ],
)
def test_a_rank_enters_a_request_and_moves_what_it_must_at_its_largest_rate(asked: Any, least_s: float) -> None:
    assert _floor_s(asked, Fabric({})) == pytest.approx(least_s)


@pytest.mark.parametrize(
    ("name", "choosing", "kept"), [("all_gather", 4, [0, 2]), ("all_gather", 1, [0, 1, 2, 3]), (MESSAGE, 4, [0, 1, 2, 3])]
)
def test_of_groups_that_symmetries_make_equal_the_first_stays_unless_one_chooses_for_all(
    name: str, choosing: int, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here groups whose first NPUs are 0 and 3, and 6 and 9, are equal: the one with the larger number comes first in order."""
    monkeypatch.setattr(room, "canonical_npus", lambda _, npus: np.array([9, 9, 9] if npus[0] < 6 else [1, 1, 1]))
    asked = distinct(name, n_groups=4)
    asked = room.replace(asked, choosing=asked.ranks[:choosing])
    own = _Fabric(Choice(), SWITCH, np.arange(12), 0, RATES)
    found = own.fewest(asked)
    assert found.ranks.tolist() == asked.ranks[kept].tolist()
    assert (found is asked) == (len(kept) == 4)
    assert len(found.choosing) == (2 if len(kept) == 2 else choosing)
