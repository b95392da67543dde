import numpy as np
import pytest

from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.classes import Joins
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star

MS = 10**12
STAR = star("star", 4, 1e9, 0)
PING = Schedule.build(2, 1, [Sends(0, 1, 0)])
SECOND = np.array([10**6])  # bytes that take 1 ms


def ping(src, dst, joins=Joins.BOTH):
    return lower(FabricJob(PING, SECOND, STAR, np.array([src, dst])), joins=joins)


def test_tasks_and_pieces_wait_as_they_are_told():
    builder = Builder(STAR.links.bandwidth_Bps)
    first, second = builder.tasks(np.array([3 * MS, 5 * MS]), owner=0, origin=[7, 8])
    begin = builder.piece(piece := ping(0, 1), owner=[0, 1], origin=[9, -1])
    (last,) = builder.tasks(np.array([MS]), owner=1)
    builder.wait(np.array([second, begin + piece.entry[0], last]), np.array([first, first, begin + piece.exit[1]]))
    graph = builder.graph()
    end = run_graph(graph).end_fs
    assert (end[[first, second, begin, last]] / MS).tolist() == [3, 8, 4, 5]
    assert graph.owner[[first, second, begin, last]].tolist() == [0, 0, 0, 1]
    assert graph.origin[[first, second, begin, last]].tolist() == [7, 8, 9, -1]
    assert graph.owner[begin + piece.entry].tolist() == [-1, -1]


def test_pieces_share_the_links():
    builder = Builder(STAR.links.bandwidth_Bps)
    builder.piece(ping(0, 1), owner=[0, 1], origin=[-1, -1])
    builder.piece(ping(0, 2), owner=[0, 2], origin=[-1, -1])
    assert run_graph(builder.graph()).end_fs.max() == 2 * MS


def test_one_piece_added_many_times_is_many():
    builder, piece = Builder(STAR.links.bandwidth_Bps), ping(0, 1)
    begins = [builder.piece(piece, owner=[0, 1], origin=[i, -1]) for i in range(5)]
    ends, starts = np.array(begins) + piece.exit[0], np.array(begins) + piece.entry[0]
    builder.wait(starts[1:], ends[:-1])
    graph = builder.graph()
    assert (run_graph(graph).end_fs[ends] / MS).tolist() == [1, 2, 3, 4, 5]
    assert graph.origin[begins].tolist() == [0, 1, 2, 3, 4]
    assert graph.n_tasks == builder.n_tasks == 5 * piece.graph.n_tasks


@pytest.mark.parametrize("times", [1, 2, 5])
def test_pieces_added_at_once_are_those_added_one_after_another(times):
    piece, at_once, each = ping(0, 1), Builder(STAR.links.bandwidth_Bps), Builder(STAR.links.bandwidth_Bps)
    owners, origins = np.array([[i, i + 1] for i in range(times)]), np.array([[7 * i, -1] for i in range(times)])
    for builder in (at_once, each):
        builder.tasks(np.array([MS]))
    firsts = at_once.pieces(piece, owners, origins)
    assert firsts.tolist() == [each.piece(piece, *of) for of in zip(owners, origins, strict=True)]
    assert at_once.graph().digest() == each.graph().digest()


def test_one_piece_alone_is_the_graph_it_was():
    builder, piece = Builder(STAR.links.bandwidth_Bps), ping(0, 3, joins=Joins.EXITS)
    builder.piece(piece, owner=[0, 1], origin=[0, 0])
    assert builder.graph().digest() == piece.graph.digest()


def test_waiting_twice_is_waiting_once():
    builder = Builder(STAR.links.bandwidth_Bps)
    first, second = builder.tasks(np.array([MS, MS]))
    builder.wait(np.array([second, second]), np.array([first, first]))
    assert builder.graph().pred.tolist() == [first]


def test_nothing_added_is_an_empty_graph():
    graph = Builder(STAR.links.bandwidth_Bps).graph()
    assert graph.n_tasks == 0
    assert run_graph(graph).end_s == 0


def test_a_piece_on_other_links_is_refused():
    builder = Builder(star("star", 2, 1e9, 0).links.bandwidth_Bps)
    with pytest.raises(InputError, match="builder: a graph on 8 links cannot be added to one on 4; take equal links"):
        builder.piece(ping(0, 1), owner=[0, 1], origin=[-1, -1])
