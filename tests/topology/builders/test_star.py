import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.wiring import star


def test_npus_meet_through_the_switch_and_helpers_are_one_link_away():
    topology = star("s", 4, 1e9, 5)
    src, dst = np.array([0, 3, 2, 4]), np.array([1, 0, 4, 1])
    routes = topology.routes(src, dst, np.zeros(4))
    links = topology.links
    paths = [[links.src[routes.of(p)[0]], *links.dst[routes.of(p)]] for p in range(4)]
    assert paths == [[0, 4, 1], [3, 4, 0], [2, 4], [4, 1]]


@pytest.mark.parametrize("node", [2, 4])
def test_a_node_has_no_route_to_itself(node):
    with pytest.raises(InputError, match=rf"^s: no route from node {node} to node {node}$"):
        star("s", 4, 1e9, 5).routes(np.array([0, node]), np.array([1, node]), np.array([0, 0]))


def test_a_star_of_no_npus_is_refused():
    with pytest.raises(InputError, match=r"^s: NPUs must be 1 or more, got 0$"):
        star("s", 0, 1e9, 5)


def test_a_star_of_too_many_links_is_refused():
    with pytest.raises(InputError, match=r"^s: links must be at most 2\*\*24, got 16777218; take fewer NPUs$"):
        star("s", 2**23 + 1, 1e9, 5)
