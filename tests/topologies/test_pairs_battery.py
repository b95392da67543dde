"""Every system that has spares, or mends itself, with two parts down: what holds for all of them, whatever the parts.

The systems are those of the registry; a job is as large as survives the loss of its first NPU, or half of that.
"""

import itertools
from functools import cache, lru_cache

import numpy as np
import pytest

from emu.equivalence import components
from emu.errors import InputError
from emu.study.live.faulty_job import time_faulty_job
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.fault_injection.fault import Fault, check_faults, nic_of, parse_fault
from emu.topology.fault_injection.machine_state import events_of, lost_ranks, machine_state, repair_action
from emu.topology.placement import npu_order

MOST_NODES = 60  # of an example that is taken
FEW = 6  # pairs of each system that are drawn where not all are taken
MANY = 20  # jobs of drawn faults, where many are
STEPS = 7
UNROUTED = "only through nodes that pass nothing on in this topology's routing"
build = cache(build_topology)


@cache
def survivor(line):
    """The largest job that links join and that survives the loss of its first NPU, of two ranks at least; 0: there is none."""
    topology = build(line)
    room = npu_order(topology)
    part = components(topology.n_nodes, topology.links.src, topology.links.dst)
    lost = parse_fault(f"npu {room[0]} at step 1")
    for ranks in range(int((part[room] == part[room[0]]).cumprod().sum()), 1, -1):
        if not isinstance(on(line, frozenset([lost]), ranks), str):
            return ranks
    return 0


@cache
def systems():
    """Return for each variant of the registry the smallest example in which a job survives, all of it where one has that."""
    found = []
    for name, blueprint in TOPOLOGIES:
        lines = [":".join(filter(None, (name, example))) for example in blueprint.examples]
        small = [line for line in lines if build(line).n_nodes <= MOST_NODES]
        spared = [line for line in small if survivor(line)]
        found += sorted(spared, key=lambda line: (survivor(line) < len(npu_order(build(line))), build(line).n_nodes))[:1]
    return found


@lru_cache(maxsize=4096)
def on(line, faults, ranks):
    """Return what a job has around faults, or why it has nothing."""
    try:
        return machine_state(build(line), sorted(faults, key=str), ranks)
    except InputError as error:
        return str(error)


def parts(topology):
    """Return parts of each kind: NPUs, NICs, and of each tier links and switches; of the first NPU its own ones too."""
    links, n = topology.links, topology.n_npus
    room = [int(npu) for npu in npu_order(topology)]
    texts = [f"npu {npu}" for npu in (room[0], room[1], room[-1])]
    texts += [f"nic {npu}" for npu in (room[0], room[-1]) if _has_nic(topology, npu)]
    texts += [f"switch {topology.n_nodes - 1}"] * (topology.n_nodes > n)  # a backup NPU where a system has some
    for tier in np.unique(links.dimension):
        rows = np.flatnonzero(links.dimension == tier)
        own = rows[links.src[rows] == room[0]]
        for row in {int(rows[0]), int(rows[len(rows) // 2]), *own[:1].tolist()}:
            texts.append(f"link {min(links.src[row], links.dst[row])}-{max(links.src[row], links.dst[row])}")
            texts += [f"switch {node}" for node in (links.src[row], links.dst[row]) if node >= n]
    return [parse_fault(f"{text} at step 1") for text in dict.fromkeys(texts)]


def _has_nic(topology, npu):
    try:
        return bool(nic_of(topology, npu))
    except InputError:
        return False


def failed_of(topology, faults):
    """The nodes and the pairs of nodes that faults name."""
    nodes = {fault.at[0] for fault in faults if fault.part in ("npu", "switch")}
    pairs = {fault.at for fault in faults if fault.part == "link"}
    pairs |= {pair for fault in faults if fault.part == "nic" for pair in nic_of(topology, fault.at[0])}
    return nodes, pairs | {pair[::-1] for pair in pairs}


def working(topology, faults):
    """[L] the links of the whole machine that work."""
    nodes, pairs = failed_of(topology, faults)
    ends = list(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    return np.array([not {a, b} & nodes and (a, b) not in pairs for a, b in ends], np.bool_)


def check_placed(line, faults, ranks):
    """Ranks are on NPUs of their own that work, and routes cross nothing that has failed."""
    topology, found = build(line), on(line, frozenset(faults), ranks)
    nodes, pairs = failed_of(topology, faults)
    assert len(set(found.npus.tolist())) == ranks
    assert not nodes & set(found.npus.tolist())
    placed = found.topology.place(ranks)
    assert found.of[placed].tolist() == found.npus.tolist()
    src, dst = (placed[ends] for ends in np.nonzero(~np.eye(ranks, dtype=bool)))
    routes = found.topology.router(src, dst, np.zeros_like(src))
    links = found.topology.links
    ends = found.of[np.stack((links.src, links.dst))[:, routes.link]]
    assert not np.isin(ends, list(nodes)).any()
    assert not pairs & set(zip(*ends.tolist(), strict=True))
    for pair in np.flatnonzero(routes.hops == 0)[:1]:
        with pytest.raises(InputError, match=UNROUTED):
            found.topology.routes(src[pair : pair + 1], dst[pair : pair + 1], np.zeros(1, np.int64))


def has_room(line, faults, ranks):
    """Return whether the system's own rule of placement finds NPUs that work and that working links join to one another."""
    topology = build(line)
    nodes, _ = failed_of(topology, faults)
    left = working(topology, faults)
    part = components(topology.n_nodes, topology.links.src[left], topology.links.dst[left])
    for one in np.unique(part[npu_order(topology)]):
        away = {*np.flatnonzero(part != one).tolist(), *nodes} & set(range(topology.n_npus))
        placed = by_rule(topology, ranks, sorted(away))
        if len(placed) == ranks and not set(placed.tolist()) & nodes and (part[placed] == one).all():
            return True
    return False


def by_rule(topology, ranks, away):
    """The NPUs of a job; of a system that has groups and no placement of its own those of a group of so many, if any."""
    if topology.placer is None and topology.usable_counter is not None:
        blocks = np.arange(topology.n_npus // ranks * ranks).reshape(-1, ranks)
        return blocks[~np.isin(blocks, away).any(axis=1)][:1].ravel()
    try:
        return topology.place(ranks, away)
    except InputError:
        return np.zeros(0, np.int64)


def check_pair(line, one, other, ranks):
    """Two faults, in one order and in the other, at one step and at two, and what is back again."""
    topology, both = build(line), [one, other]
    found = on(line, frozenset(both), ranks)
    if isinstance(found, str):
        assert not has_room(line, both, ranks), found
        assert "\n" not in found
        check_stopped(line, both, ranks)
        return
    assert all(not isinstance(on(line, frozenset([each]), ranks), str) for each in both), "fewer faults leave less room"
    assert not isinstance(on(line, frozenset(both), max(1, ranks // 2)), str), "a smaller job finds no room"
    check_placed(line, both, ranks)
    turned = machine_state(topology, [other, one, other], ranks)
    assert (turned.topology.name, turned.npus.tolist(), turned.broken) == (
        found.topology.name,
        found.npus.tolist(),
        found.broken,
    )
    check_mending(line, both, ranks)


def check_mending(line, both, ranks):
    """A fault takes the ranks that move as it comes, and no time where it changes nothing."""
    topology = build(line)
    for before, now in ((both[:1], both), (both, both[1:]), (both, [])):
        took_fs, told = repair_action(topology, before, now, ranks)
        was, then = (on(line, frozenset(faults), ranks) for faults in (before, now))
        assert took_fs >= 0
        assert bool(told) == (was.broken != then.broken)
        assert not took_fs or told
        hit = {rank for _, rank in lost_ranks(before, now, was.npus, then.broken.nodes)}
        lost = np.flatnonzero(np.isin(was.npus, then.broken.nodes))
        assert hit == set(lost.tolist())
    again = [*both, Fault(both[0].part, both[0].at, 2)]
    assert repair_action(topology, both, again, ranks) == (0, "")
    assert events_of(both, again) == events_of(again, both) == ()


def check_stopped(line, both, ranks):
    """The job ends with a line that names what has failed."""
    at = [Fault(fault.part, fault.at, 2 + i) for i, fault in enumerate(both)]
    came = timed(line, at, ranks)
    last = at[len(came.steps) - 1]
    assert came.stopped.startswith(f"step {last.first}: {last.what} failed, and the job cannot go on: ")


def timed(line, faults, ranks):
    """A job whose steps take as long as their messages have hops, but for those that nothing routes."""
    topology = build(line)
    check_faults(faults, topology, ranks, STEPS)
    return time_faulty_job(topology, faults, ranks, STEPS, lambda found: hops(found, ranks), "none")


def hops(found, ranks):
    placed = found.topology.place(ranks)
    return (1.0 + found.topology.router(placed[:-1], placed[1:], np.zeros(ranks - 1, np.int64)).hops.sum(),)


def sizes(line):
    return sorted({survivor(line), max(2, survivor(line) // 2)})


def pairs_of(line):
    """Each pair of parts, and each part with itself."""
    return list(itertools.combinations_with_replacement(parts(build(line)), 2))


def check_drawn(line, rng, ranks):
    """Three to five faults that come and go: each step has what its own faults leave, and nothing of those before."""
    some = parts(build(line))
    chosen = [(some[at].part, some[at].at) for at in rng.integers(len(some), size=rng.integers(3, 6))]
    firsts, long = rng.integers(1, STEPS, len(chosen)), rng.integers(0, STEPS, len(chosen))
    known = [
        Fault(*fault, first, first + more) for fault, first, more in zip(chosen, firsts.tolist(), long.tolist(), strict=True)
    ]
    came = timed(line, known, ranks)
    before = frozenset()
    for step in range(1, STEPS + 1):
        now = frozenset(Fault(fault.part, fault.at, 1) for fault in known if fault.holds(step))
        found = on(line, now, ranks)
        if isinstance(found, str):
            assert not has_room(line, now, ranks)
            assert len(came.steps) == step - 1
            assert came.stopped.startswith(f"step {step}: ")
            assert came.stopped.endswith(f"and the job cannot go on: {found}")
            return
        done = came.steps[step - 1]
        check_placed(line, now, ranks)
        assert done.time_s - done.mending_s == pytest.approx(hops(found, ranks)[0])
        assert bool(done.events) == (now != before)
        assert not done.mending_s or on(line, before, ranks).broken != found.broken
        before = now
    assert came.stopped is None


def quick():
    """Each system with one of the sizes of its jobs, by turns."""
    for turn, line in enumerate(systems()):
        yield line, sizes(line)[turn % len(sizes(line))]


def test_the_systems_have_all_families_that_say_how_they_mend_themselves():
    families = {name.partition(":")[0] for name, blueprint in TOPOLOGIES if build(blueprint.example).fault_handler is not None}
    assert families <= {line.partition(":")[0] for line in systems()}
    assert len(families) >= 5


@pytest.mark.parametrize(("line", "ranks"), list(quick()))
def test_two_faults_of_any_parts_leave_a_job_that_has_room_going_on(line, ranks):
    rng, pairs = np.random.default_rng(len(line)), pairs_of(line)
    for at in rng.permutation(len(pairs))[:FEW]:
        check_pair(line, *pairs[at], ranks)


@pytest.mark.parametrize(("line", "ranks"), list(quick()))
def test_faults_that_are_drawn_come_and_go(line, ranks):
    check_drawn(line, np.random.default_rng(len(line)), ranks)


@pytest.mark.slow
@pytest.mark.parametrize("line", systems())
def test_all_pairs_of_two_faults_and_many_that_are_drawn(line):
    rng = np.random.default_rng(1 + len(line))
    for ranks in sizes(line):
        for one, other in pairs_of(line):
            check_pair(line, one, other, ranks)
        for _ in range(MANY):
            check_drawn(line, rng, ranks)
