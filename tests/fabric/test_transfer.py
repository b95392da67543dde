"""Tasks under way that go on over other links: what has passed stays passed, and what begins anew does all of it again."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims
from emu.errors import RunError
from emu.fabric.build import Builder
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import NEVER
from emu.fabric.graph import Graph
from emu.fabric.lower import lower_placed
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from emu.trace.matching.call_batch import BatchKey
from emu.trace.replay.placed_request import place_request

US = 10**9  # ticks
MB = 10**6


def chain(link: int, share: float = 1.0, latency_fs: int = 0) -> Graph:
    """A computation of a millisecond, a message of 1 MB over one of two links of 1 and 0.5 GB/s, and the computation again."""
    builder = Builder(np.array([1e9, 0.5e9]))
    tick = np.array([int(1000 * US / share)])
    first, message, last = (
        builder.tasks(tick),
        builder.messages(*map(np.array, ([MB], [latency_fs], [0, 1])), *(np.array([n], np.int32) for n in (link, 1))),
        builder.tasks(tick),
    )
    builder.wait(message, first)
    builder.wait(last, message)
    return builder.graph()


def moved_at(time_fs: int, before: Graph, after: Graph, anew: list[bool] | None = None) -> list[int]:
    state = State(before.capacity_Bps)
    state.admit(before)
    state.advance(time_fs)
    state = state.moved(after, anew=None if anew is None else np.array(anew))
    state.advance()
    return (state.end_fs // US).tolist()


def test_what_is_left_of_a_message_goes_over_the_other_link() -> None:
    assert moved_at(1400 * US, chain(0), chain(1)) == [1000, 2600, 3600]


def test_a_message_that_has_not_begun_goes_over_the_other_link_whole() -> None:
    assert moved_at(400 * US, chain(0), chain(1)) == [1000, 3000, 4000]


def test_what_has_left_arrives_when_it_would_have() -> None:
    far = chain(0, latency_fs=500 * US)
    assert moved_at(2200 * US, far, chain(1)) == [1000, 2500, 3500]


def test_of_a_computation_under_way_what_is_left_takes_as_much_longer_as_the_whole() -> None:
    assert moved_at(400 * US, chain(0), chain(0, share=0.5)) == [1600, 2600, 4600]


def test_two_changes_of_speed_in_one_computation_undo_each_other() -> None:
    state = State(chain(0).capacity_Bps)
    state.admit(chain(0))
    state.advance(200 * US)
    state = state.moved(chain(0, share=0.5))
    state.advance(600 * US)
    state = state.moved(chain(0))
    state.advance()
    assert (state.end_fs // US).tolist() == [1200, 2200, 3200]


def test_what_begins_anew_does_all_of_it_again_from_then_on() -> None:
    assert moved_at(1400 * US, chain(0), chain(0), anew=[False, True, True]) == [1000, 2400, 3400]
    assert moved_at(2500 * US, chain(0), chain(0), anew=[True, True, True]) == [3500, 4500, 5500]


@pytest.mark.parametrize("time_us", [0, 7, 333, 1100, 2500])
def test_tasks_that_are_moved_to_the_links_they_are_on_end_as_if_they_were_not(time_us: int) -> None:
    board = build_topology("ub-mesh:board")
    what = BatchKey(0, AlgorithmOnDims("ring"), "all_reduce", 8, 0, 80 * MB, 40 * MB, b"")
    graph = lower_placed(place_request(what, board, np.arange(8)[None])).graph
    state = State(graph.capacity_Bps)
    state.admit(graph)
    state.advance()
    wanted = state.end_fs
    assert wanted.max() > time_us * US
    state = State(graph.capacity_Bps)
    state.admit(graph)
    state.advance(time_us * US)
    state = state.moved(graph)
    state.advance()
    np.testing.assert_allclose(state.end_fs, wanted, rtol=1e-9, atol=40_000)  # a part of a byte


def test_tasks_that_are_held_stay_so() -> None:
    state = State(chain(0).capacity_Bps)
    state.admit(chain(0), held=np.array([0]))
    state.advance(100 * US)
    state = state.moved(chain(1), held=np.array([0]))
    state.advance(300 * US)
    assert (state.end_fs == NEVER).all()
    state.let_go(0)
    state.advance()
    assert (state.end_fs // US).tolist() == [1300, 3300, 4300]


def test_other_tasks_are_refused() -> None:
    state = State(chain(0).capacity_Bps)
    state.admit(chain(0))
    other = chain(0)
    with pytest.raises(RunError, match="wait for one another as before"):
        state.moved(replace(other, pred=other.pred[::-1]))


def test_a_link_that_is_gone_is_led_round_from_the_moment_on() -> None:
    ring = build_topology("torus:dims=8,bandwidth=50GB/s,latency=500ns")
    what = BatchKey(0, AlgorithmOnDims("at-once"), "all_to_all", 8, 0, 80 * MB, 40 * MB, b"")
    gone = remove_parts(ring, links=np.flatnonzero((ring.links.src == 0) & (ring.links.dst == 1)))
    whole, left = (lower_placed(place_request(what, each, np.arange(8)[None])).graph for each in (ring, gone))
    ends = [max(moved_at(time_us * US, whole, left)) for time_us in (0, 300, 600, 10**6)]
    alone = State(left.capacity_Bps)
    alone.admit(left)
    alone.advance()
    assert ends[0] == int(alone.end_fs.max()) // US
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == 4
