"""The race of algorithms for one request: what bounds one, and in which order they are timed, by bounds made by hand."""

from typing import Any

import numpy as np
import pytest

from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.study.choice import fastest as room
from emu.study.choice.fastest import Entrant, _Race, bounds
from emu.study.choice.race_progress import RACE
from emu.study.choice.site import Requirement, Site
from emu.study.timing import ROUNDING, TimeBound, claimed_bytes_fs, claimed_fs
from emu.topology.catalogue import build_topology

MESH = Site.first(build_topology("full-mesh:n=4,bandwidth=50GB/s,latency=500ns"))
WANTED = Requirement("all_reduce", 0, 2**12, 4)
LESS = 1 - ROUNDING
FEW, MORE = 2**15, 2**15 + 1  # messages of a light algorithm, and of a heavy one


def race(groups: int = 1, **known: Any) -> _Race:
    """Return a race on a mesh for groups that ask at once."""
    return _Race(MESH, WANTED._replace(groups=groups), **known)


@pytest.mark.parametrize(
    ("messages", "groups", "heavy", "saves"),
    [
        (FEW, 1, False, 0.0),
        (FEW, 2**9, False, 0.0),
        (MORE, 1, True, 0.01),
        (2**18, 1, True, 0.01),
        (2**18, 2, True, 0.01),
        (2**18, 6, True, 0.03),  # 3 times 2**19 messages of all groups
        (2**18, 64, True, 0.1),  # exactly all that can be timed, and no more than a tenth
    ],
)
def test_of_many_messages_it_comes_last_and_must_save_a_share_that_grows_with_those_of_all_groups(
    messages: int, groups: int, heavy: bool, saves: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    monkeypatch.setattr(room, "_bound_of", lambda *of: asked.append(of) or TimeBound(messages, 700.0, 900.0))
    [found] = race(groups).built_entrants(Entrant(False, 50.0, "direct", False))
    assert found == (heavy, 900.0 * LESS, "direct", True, pytest.approx(saves), messages * groups)
    assert asked == [(MESH, WANTED, "direct")]  # as one group alone, whose bound serves any number of them
    [higher] = race(groups).built_entrants(Entrant(False, 901.0, "direct", False))
    assert higher.bound_fs == 901.0


@pytest.mark.parametrize(("messages", "groups"), [(2**19 + 1, 1), (2**18, 65), (2**24, 2)])
def test_too_many_messages_of_one_group_or_of_all_are_not_timed_but_for_the_default(
    messages: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_bound_of", lambda *_: TimeBound(messages, 1.0, 2.0))
    own = race(groups)
    default = next(name for name, found in own.found.items() if found.default)
    assert own.built_entrants(Entrant(False, 0.0, "direct", False)) == []
    assert own.skipped == ["direct"]
    assert [each.name for each in own.built_entrants(Entrant(False, 0.0, default, False))] == [default]
    assert (own.skipped, own.refused) == (["direct"], [])


def test_as_many_messages_as_may_be_timed_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_bound_of", lambda *_: TimeBound(2**19, 1.0, 2.0))
    assert len(race(32).built_entrants(Entrant(False, 0.0, "direct", False))) == 1


def test_what_cannot_run_there_is_refused_with_its_reason_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own, why = race(), InputError("too many rows")
    for known in (None, why):
        monkeypatch.setattr(room, "_bound_of", lambda *_, known=known: known)
        assert own.built_entrants(Entrant(False, 0.0, "direct", False)) == []
    assert (own.refused, own.skipped) == ([why], [])


@pytest.mark.parametrize("elements", [1, 2**12, 2**24])
def test_a_claim_bounds_by_its_latency_or_by_its_bytes_whichever_takes_longer(elements: int) -> None:
    """One element takes its latency, many their bytes; every algorithm enters the race with that, the least first."""
    wanted = WANTED._replace(elements=elements)
    own = _Race(MESH, wanted)
    found = algorithm("all_reduce", "ring")
    latency_fs = claimed_fs(found, 4, MESH.topology)
    bytes_fs = claimed_bytes_fs(found, 4, MESH.topology, MESH.npus, elements, 4)
    assert min(latency_fs, bytes_fs) > 0 or elements == 1
    assert own.claimed_fs("ring") == max(latency_fs, bytes_fs) * LESS
    entrants = own.entrants()
    assert {each[1:4] for each in entrants} == {(own.claimed_fs(name), name, False) for name in own.found}
    assert entrants[0] == min(entrants)
    assert not any(each.heavy or each.saves or each.messages for each in entrants)


class Known(_Race):
    """A race of four algorithms, of which the claim, the bound, the messages and the time are known."""

    rows: dict[str, tuple[float, float, int, float]]
    seen: list[Any]

    def __post_init__(self) -> None:
        self.found = dict.fromkeys(self.rows, algorithm("all_reduce", "direct"))

    def claimed_fs(self, name: str) -> float:
        """Return what is claimed."""
        return self.rows[name][0]

    def built_entrants(self, entrant: Entrant) -> list[Entrant]:
        """Return the bound of what is built; more than 100 messages are many, and must save a tenth."""
        self.seen.append(entrant.name)
        _, bound, messages, _ = self.rows[entrant.name]
        heavy = messages > 100
        self.skipped += [entrant.name] * (not messages)
        return [Entrant(heavy, bound, entrant.name, True, 0.1 * heavy, messages)] if messages else []

    def digest(self, name: str) -> str:
        """Return what an algorithm sends, which its first letter says."""
        return name[0]

    def end_fs(self, name: str) -> float:
        """Return the time."""
        self.seen.append((name, RACE.text().split(", ")[-1]))
        return self.rows[name][3]


def raced(monkeypatch: pytest.MonkeyPatch, rows: dict[str, tuple[float, float, int, float]]) -> tuple[Any, list[Any]]:
    """Return what wins a race of known rows, and what was built and timed for it."""
    seen = list[Any]()
    monkeypatch.setattr(Known, "rows", rows, raising=False)
    monkeypatch.setattr(Known, "seen", seen, raising=False)
    monkeypatch.setattr(room, "_Race", Known)
    return room._race(MESH, WANTED), seen


def test_a_race_builds_and_times_the_least_bound_first_and_leaves_out_what_cannot_win(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "a": (10.0, 60.0, 5, 90.0),
        "b": (20.0, 50.0, 5, 100.0),
        "c": (30.0, 90.0, 5, 90.0),  # may be as fast, and is: the first by name counts
        "d": (95.0, 95.0, 5, 1.0),  # claims more than the best takes
        "e": (40.0, 80.0, 101, 89.0),  # heavy, and promises to save a ninth
        "f": (40.0, 81.5, 101, 1.0),  # promises less than a tenth
    }
    chosen, seen = raced(monkeypatch, rows)
    assert chosen.served.algorithm == "e"
    timed = [("b", "5 algorithms left"), ("a", "4 algorithms left"), ("c", "1 algorithms left"), ("e", "0 algorithms left")]
    assert [each for each in seen if isinstance(each, tuple)] == timed
    assert [each for each in seen if isinstance(each, str)] == ["a", "b", "c", "e", "f"]


def test_of_algorithms_that_are_as_fast_the_first_by_name_wins_whichever_is_timed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {"b": (1.0, 2.0, 5, 90.0), "a": (1.0, 90.0, 5, 90.0), "c": (1.0, 90.0, 5, 90.0)}
    skipped = {"z": (0.1, 0.1, 0, 0.0), "x": (0.2, 0.1, 0, 0.0), "y": (0.3, 0.1, 0, 0.0)}
    chosen, _ = raced(monkeypatch, {**rows, **skipped})
    assert chosen.served.algorithm == "a"
    assert chosen.skipped == ("x", "y", "z")  # in the order of their names


def test_bounds_come_in_their_order_however_many_messages_they_have_and_equal_sends_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal sends have equal bounds, equal messages and equal digests: here the first letter of the name."""
    rows = {
        "ab": (5.0, 30.0, 7, 0.0),
        "aa": (6.0, 30.0, 7, 0.0),
        "ac": (6.0, 30.0, 8, 0.0),
        "ad": (6.0, 31.0, 7, 0.0),
        "ba": (6.0, 30.0, 7, 0.0),
        "ca": (1.0, 20.0, 101, 0.0),
        "da": (50.0, 60.0, 3, 0.0),
        "ea": (2.0, 3.0, 0, 0.0),  # cannot be timed
    }
    monkeypatch.setattr(Known, "rows", rows, raising=False)
    monkeypatch.setattr(Known, "seen", seen := list[Any](), raising=False)
    monkeypatch.setattr(room, "_Race", Known)
    found = bounds(MESH, WANTED)
    assert next(found).name == "ca"
    assert "da" not in seen  # it is built when its claim is the least bound that is left
    rest = [(each.name, each.bound_fs, each.messages) for each in found]
    assert rest == [("aa", 30.0, 7), ("ac", 30.0, 8), ("ba", 30.0, 7), ("ad", 31.0, 7), ("da", 60.0, 3)]


def test_a_collective_ends_later_by_what_a_rank_takes_to_send_a_message() -> None:
    """On a mesh each rank of a direct all_gather sends three messages, one after another if that takes time."""
    taken = [room.end_fs(MESH, Requirement("all_gather", 0, 4, 1, ticks), "direct") for ticks in (0, 10**9)]
    assert taken[1] - taken[0] == 3 * 10**9
    assert np.isfinite(race().end_fs("ring"))
