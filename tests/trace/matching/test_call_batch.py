"""Calls and batches of random programs, held against a search by hand: each request by its group, its peers and its turn."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.trace.matching.call_batch import CallBatch, batches_of, communicators
from emu.trace.matching.matcher import collective_requests, matched_calls, members_of_calls
from emu.trace.matching.role_requests import MESSAGE, equivalent_groups, role_requests
from emu.trace.trace import Group, Kind, Trace
from tests.trace.laid import Words, trace_of

PAIRS, THREES, ALL = ((0, 1), (2, 3), (4, 5)), ((0, 2, 4), (5, 3, 1)), tuple(range(6))  # a group may have any order
GROUPS = [*(Group("tp", pair) for pair in PAIRS), *(Group("dp", three) for three in THREES), Group("world", ALL)]
GROUP_OF = tuple((rank // 2, 3 + rank % 2, 5) for rank in ALL)
ROLE_OF_RANK = (0, 1, 0, 1, 2, 3)  # the last pair has a program of its own
OPERATIONS = ("all_reduce", "all_gather", "broadcast")


class ByHand(NamedTuple):
    """A call: its group, and the ranks and the rows of its members; of a message the sender comes first."""

    group: int
    ranks: tuple[int, ...]
    rows: tuple[int, ...]
    name: str
    root: int
    elements: int


def program_of_roles(seed: int) -> list[list[dict[str, Any]]]:
    """Draw what each role asks for: collectives that all members agree on, and messages within a pair."""
    rng, words, roles = np.random.default_rng(seed), Words(), [list[list[dict[str, Any]]]() for _ in range(4)]
    for group, n in ((0, 3), (1, 4), (2, 2)):
        drawn = [(int(rng.integers(1, 3)) * 6, OPERATIONS[rng.integers(3)], int(rng.integers(2))) for _ in range(n)]
        asked = [
            words.collective(count, name, group, instance=i, root=root * (name == "broadcast"), dtype="int32")
            for i, (count, name, root) in enumerate(drawn)
        ]
        for role in roles:
            role.append(list(asked))
    for pair in ((0, 1), (2, 3)):
        for sender in (0, 1):
            sent = [(int(rng.integers(1, 3)) * 4, int(rng.integers(2))) for _ in range(rng.integers(2, 5))]
            by_tag = sorted(sent, key=lambda message: message[1])  # received in another order than sent
            roles[pair[sender]].append([words.send(count, 1 - sender, tag=tag) for count, tag in sent])
            roles[pair[1 - sender]].append([words.recv(count, sender, tag=tag) for count, tag in by_tag])
    equal = [words.send(4, 2, group=1, tag=tag) for tag in (0, 1)]  # each role that sends plays two places of a three
    for place, sends, gets in ((2, 0, 2), (0, 1, 3)):
        others = [other for other in range(3) if other != place]
        roles[sends].append([{**row, "root": place} for row in equal])
        roles[gets].append([words.recv(4, other, group=1, tag=tag) for tag in (0, 1) for other in others])
    return [_mixed(rng, queues, words) for queues in roles]


def _mixed(rng: np.random.Generator, queues: list[list[dict[str, Any]]], words: Words) -> list[dict[str, Any]]:
    """Let a role take from its queues at random, each in its order; the first rows may be set-up."""
    found = []
    while any(queues):
        queue = queues[rng.integers(len(queues))]
        found += [queue.pop(0)] if queue else [words.compute(1)]
    found[2:2] = [words.compute(1)] * int(rng.integers(2) * 250)  # rows beyond a byte
    early = int(rng.integers(4))
    return [{**row, "step": int(i >= early)} for i, row in enumerate(found)]


def drawn_trace(seed: int) -> Trace:
    words = Words()
    roles = [words.events(*rows, words.mark()) for rows in program_of_roles(seed)]
    return trace_of(*roles, role_of_rank=ROLE_OF_RANK, groups=GROUPS, group_of=GROUP_OF)


def by_hand(trace: Trace, *, with_setup: bool = False) -> list[ByHand]:
    """Find the calls: the n-th collectives of all members of a group, and the n-th messages of equal peers and tag."""
    found = []
    for number, group in enumerate(trace.groups):
        asked, sent, got = (
            defaultdict[int, list[Any]](list),
            defaultdict[Any, list[Any]](list),
            defaultdict[Any, list[Any]](list),
        )
        for rank in group.ranks:
            events = trace.events_of(rank)
            for row in range(len(events)):
                if events.group[row] < 0 or trace.group_of[rank][events.group[row]] != number:
                    continue
                peer, tag = group.ranks[events.root[row]], int(events.tag[row])
                if events.kind[row] == Kind.COLLECTIVE:
                    asked[int(events.instance[row])].append((rank, row))
                elif events.kind[row] == Kind.SEND:
                    sent[rank, peer, tag].append((rank, row))
                else:
                    got[peer, rank, tag].append((rank, row))
        ends = [both for key in sent for both in zip(sent[key], got[key], strict=True)]
        found += [(number, *zip(*members, strict=True)) for members in (*asked.values(), *ends)]
    calls = [ByHand(number, ranks, rows, *_what(trace, ranks[0], rows[0])) for number, ranks, rows in found]
    return [call for call in calls if with_setup or all(_step(trace, *end) for end in zip(call.ranks, call.rows, strict=True))]


def _step(trace: Trace, rank: int, row: int) -> int:
    return int(trace.events_of(rank).step[row])


def _what(trace: Trace, rank: int, row: int) -> tuple[str, int, int]:
    events = trace.events_of(rank)
    talks = events.kind[row] != Kind.COLLECTIVE
    return MESSAGE if talks else events.name[row], 0 if talks else int(events.root[row]), int(events.count[row])


@pytest.mark.parametrize("seed", range(8))
def test_the_calls_of_any_program_are_those_that_are_found_by_hand(seed: int) -> None:
    trace, found = drawn_trace(seed), []
    for met in matched_calls(trace, "float32"):
        for number, ranks in zip(met.groups.tolist(), met.ranks, strict=True):
            for place, rows, ask in zip(met.place, met.rows.tolist(), met.ask.tolist(), strict=True):
                spec = met.asks[ask]
                elements = spec.size_bytes // 4
                found.append(ByHand(number, tuple(ranks[place].tolist()), tuple(rows), spec.name, spec.root, elements))
                assert spec[3:] == ((0, "", b"") if spec.name == MESSAGE else (elements, "int32", b""))
    assert Counter(found) == Counter(by_hand(trace))


@pytest.mark.parametrize("seed", range(4))
def test_members_of_the_first_of_equivalent_groups_are_told_with_those_of_set_up(seed: int) -> None:
    """The first two pairs play the same roles; every other group has roles of its own."""
    trace = drawn_trace(seed)
    found = members_of_calls(role_requests(trace.events, "float32"), equivalent_groups(trace))
    told = [list(zip(map(tuple, roles.tolist()), map(tuple, rows.tolist()), strict=True)) for roles, rows in found]
    every = by_hand(trace, with_setup=True)
    of_groups = [[call for call in every if call.group == group] for group in (0, 2, 3, 4, 5)]
    parts = [[call for call in of if (call.name == MESSAGE) == talks] for of in of_groups for talks in (False, True)]
    expected = [[(tuple(ROLE_OF_RANK[rank] for rank in call.ranks), call.rows) for call in part] for part in parts if part]
    assert [part if len(part[0][0]) > 2 else sorted(part) for part in told] == [
        part if len(part[0][0]) > 2 else sorted(part) for part in expected
    ]


def batches(trace: Trace, *, apart: bool) -> list[CallBatch]:
    calls, numbers = matched_calls(trace, "float32"), communicators(trace.groups)
    return batches_of(calls, trace.groups, numbers, Choice({"all_reduce": "direct", "dp.all_reduce": "ring"}), apart=apart)


def in_order(trace: Trace) -> list[ByHand]:
    """Sort calls by the rows of their members, of equal rows collectives first, then by group, sender and receiver."""
    return sorted(by_hand(trace), key=lambda c: (c.rows, c.name == MESSAGE, c.group, c.ranks[0], c.ranks[-1]))


def key_of(call: ByHand) -> tuple[Any, ...]:
    """Return what all calls of a batch have in common."""
    axis, size = GROUPS[call.group].axis, 4 * call.elements
    communicator = {"tp": 0, "dp": 1, "world": 2}[axis]
    if call.name == MESSAGE:
        return communicator, None, MESSAGE, 2, 0, size, 0, b""
    served = Choice().name(call.name) if call.name != "all_reduce" else "ring" if axis == "dp" else "direct"
    return communicator, AlgorithmOnDims(served), call.name, len(call.ranks), call.root, size, call.elements, b""


def request_of(call: ByHand) -> Request:
    group = GROUPS[call.group]
    return Request(call.name, group.ranks, call.root, call.elements, "int32", axis=group.axis)


@pytest.mark.parametrize("seed", range(8))
def test_calls_that_stay_apart_follow_one_another_as_their_members_come_to_them(seed: int) -> None:
    trace = drawn_trace(seed)
    found, known = batches(trace, apart=True), set[Any]()
    expected = in_order(trace)
    assert [(each.what, each.ranks.tolist(), each.rows.tolist()) for each in found] == [
        (key_of(call), [[*call.ranks]], [[*call.rows]]) for call in expected
    ]
    for each, call in zip(found, expected, strict=True):
        asked = request_of(call)
        new = () if call.name == MESSAGE or asked in known else (asked,)
        assert each.requests == new
        known |= {*new}


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_has_the_nth_equal_calls_of_all_groups_and_of_messages_those_that_meet_no_other(seed: int) -> None:
    """A message is as late as the equal ones that its sender has sent, or its receiver got, before it."""
    trace, turn, ends, together = drawn_trace(seed), Counter[Any](), Counter[Any](), dict[Any, list[ByHand]]()
    for call in in_order(trace):
        what = key_of(call)
        if call.name == MESSAGE:
            own = [(call.group, what, end, rank) for end, rank in enumerate(call.ranks)]
            number = max(ends[each] for each in own)
            ends |= dict.fromkeys(own, number + 1)
        else:
            number = turn[what, call.group]
            turn[what, call.group] += 1
        together.setdefault((what, number), []).append(call)
    found = batches(trace, apart=False)
    assert [(each.what, each.ranks.tolist(), each.rows.tolist()) for each in found] == [
        (what, [[*call.ranks] for call in calls], [[*call.rows] for call in calls]) for (what, _), calls in together.items()
    ]
    known = set[Request]()
    for each, calls in zip(found, together.values(), strict=True):
        asked = dict.fromkeys(request_of(call) for call in calls if call.name != MESSAGE)
        assert each.requests == tuple(request for request in asked if request not in known)
        known |= {*asked}
    assert known == set(collective_requests(trace))


def test_calls_at_equal_rows_are_ordered_by_what_they_are_then_by_group_then_by_sender(words: Words) -> None:
    """The first pair exchanges messages, each end sending first, beside the collectives of two other pairs."""
    both, sums = ([words.send(4, peer), words.recv(4, peer)] for peer in (1, 0)), [words.compute(), words.collective(4)]
    last = [[words.collective(4), words.compute()], [words.compute(), words.collective(4)]]
    roles = [words.events(*rows) for rows in (*both, sums[::-1], sums, *last)]
    trace = trace_of(*roles, role_of_rank=ALL, groups=GROUPS[:3], group_of=tuple((rank // 2,) for rank in ALL))
    found = [(each.ranks.tolist(), each.rows.tolist()) for each in batches(trace, apart=True)]
    assert found == [([[*ranks]], [[0, 1]]) for ranks in ((2, 3), (4, 5), (0, 1), (1, 0))]


def test_no_calls_are_no_batches() -> None:
    assert batches_of([], GROUPS, communicators(GROUPS), Choice(), apart=False) == []


@pytest.mark.parametrize("seed", range(4))
def test_different_requests_are_told_group_by_group_in_the_order_in_which_each_group_first_makes_them(seed: int) -> None:
    trace, expected = drawn_trace(seed), dict[Request, None]()
    for call in sorted(by_hand(trace), key=lambda call: call.group):
        if call.name != MESSAGE:
            expected[request_of(call)] = None
    assert collective_requests(trace) == list(expected)
