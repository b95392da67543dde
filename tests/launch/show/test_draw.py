import numpy as np
import pytest
from scipy.spatial.distance import pdist

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from launch.show.draw import cables, curves, draw_topology, positions

LINK = "bandwidth=50GB/s,latency=500ns"
LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]


@pytest.mark.parametrize("line", [*LINES, f"torus:dims=8x8x4,{LINK}", f"torus:dims=2x2x2x2x2,{LINK}"])
def test_no_two_nodes_are_drawn_in_one_place(line):
    at = positions(build_topology(line))
    assert np.isfinite(at).all()
    assert pdist(at).min(initial=1.0) > 0.4


@pytest.mark.parametrize("line", LINES)
def test_every_cable_is_drawn_once_from_end_to_end_and_parallel_ones_apart(line):
    topology = build_topology(line)
    (rows, _), at = cables(topology), positions(topology)
    course = curves(topology, at)
    assert len(rows) == len(course) == len(topology.links) // 2
    assert np.allclose(course[:, 0], at[topology.links.src[rows]])
    assert np.allclose(course[:, -1], at[topology.links.dst[rows]])
    assert len(np.unique(course.round(9).reshape(len(rows), 66), axis=0)) == len(rows)


def test_positions_of_a_full_mesh_lie_on_a_circle():
    at = positions(build_topology(f"full-mesh:n=9,{LINK}"))
    radius = np.hypot(*at.T)
    assert np.allclose(radius, radius[0])


@pytest.mark.parametrize("name", [name for name, _ in TOPOLOGIES])
def test_the_picture_is_the_same_png_each_time(name, tmp_path):
    topology = build_topology(TOPOLOGIES.find(name).example)
    for file in ("a.png", "b.png"):
        draw_topology(topology, tmp_path / file)
    first, second = ((tmp_path / file).read_bytes() for file in ("a.png", "b.png"))
    assert first.startswith(b"\x89PNG")
    assert len(first) > 10_000
    assert first == second


@pytest.mark.parametrize("line", [f"switch:n=1,{LINK}", f"ring:n=1,{LINK}", f"torus:dims=2x3,{LINK}"])
def test_the_smallest_are_drawn_too(line, tmp_path):
    draw_topology(build_topology(line), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_what_is_too_large_to_see_is_refused():
    line = f"ring:n=257,{LINK}"
    with pytest.raises(InputError) as refused:
        draw_topology(build_topology(line), "never.png")
    assert str(refused.value) == (f"{line}: NPUs in a picture must be at most 256, got 257; draw a smaller one of its kind")


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "nowhere" / "a.png"
    with pytest.raises(InputError) as refused:
        draw_topology(build_topology("ub-mesh:board"), path)
    assert str(refused.value) == f"--png: cannot write {path}: No such file or directory"
