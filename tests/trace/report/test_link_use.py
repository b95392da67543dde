"""How busy links are in a step: what they carry at full rate, against what each message does by hand."""

from itertools import pairwise

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.trace.report.activity import BusyLink, busiest, busy_shares
from emu.trace.report.report import report
from emu.trace.trace import Group
from tests.trace.laid import MS_OF_FLOATS, replayed, star_of, trace_of
from tests.trace.report.test_report import MESH, drawn

MS = 10**12


def test_links_are_as_busy_as_what_they_carry_of_the_step(words):
    """A ring of two sends 4 ms over each of the four links of a star; computation takes 4 ms more."""
    rows = words.compute(4), words.collective(4 * MS_OF_FLOATS), words.mark([1])
    laid = replayed(trace_of(words.events(*rows)))
    done = run_graph(laid.graph)
    assert busy_shares(laid, done, 0, 8 * MS).tolist() == pytest.approx([0.5] * 4)
    assert busy_shares(laid, done, 0, 4 * MS).tolist() == [0] * 4
    assert busy_shares(laid, done, 5 * MS, 6 * MS).tolist() == pytest.approx([1] * 4)
    assert busy_shares(laid, done, 2 * MS, 6 * MS).tolist() == pytest.approx([0.5] * 4)
    assert busy_shares(laid, done, 3 * MS, 3 * MS).tolist() == [0] * 4


def test_a_link_that_one_message_takes_is_the_busy_one(words):
    sends = words.events(words.compute(1), words.send(3 * MS_OF_FLOATS, peer=2), words.mark([1]))
    takes = words.events(words.recv(3 * MS_OF_FLOATS, peer=0), words.mark([0]))
    rest = words.events(words.compute(1))
    trace = trace_of(sends, rest, takes, role_of_rank=(0, 1, 2, 1), groups=(Group("world", (0, 1, 2, 3)),))
    topology = star_of(4)
    laid = replayed(trace, topology)
    shares = busy_shares(laid, run_graph(laid.graph), 0, 4 * MS)
    links = [(int(topology.links.src[i]), int(topology.links.dst[i])) for i in np.flatnonzero(shares)]
    assert links == [(0, 4), (4, 2)]
    assert shares[shares > 0].tolist() == pytest.approx([0.75, 0.75])


@pytest.mark.parametrize("seed", range(10))
def test_the_steps_together_carry_all_that_the_run_carries(words, seed):
    trace = drawn(words, seed)
    laid = replayed(trace, MESH)
    timeline = run_graph(laid.graph)
    ends = [0, *np.cumsum(report(trace, laid, timeline).step_times_fs).tolist()]
    steps = sum(busy_shares(laid, timeline, a, b) * (b - a) for a, b in pairwise(ends))
    assert steps / 1e15 == pytest.approx(timeline.busy_s(laid.graph.capacity_Bps)[laid.link], rel=1e-9)


def test_the_busiest_are_the_first_of_those_that_carry_most():
    star = star_of(3)
    shares = np.array([0.2, 0.5, 0.0, 0.5 + 1e-15, 0.9, 0.5])
    assert busiest(shares, star) == (
        BusyLink(4, "switch 3", "NPU 1", 0.9), BusyLink(1, "NPU 1", "switch 3", 0.5),
        BusyLink(3, "switch 3", "NPU 0", 0.5 + 1e-15),
    )  # fmt: skip
    assert [link.link for link in busiest(np.array([0, 0, 0.1, 0, 0, 0]), star)] == [2]
