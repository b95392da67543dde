"""A UB-Mesh that cannot be built is refused in one line."""

import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology

BAD = [
    ("rack-full:dims=8", "ub-mesh:rack-full: dims must be 2 sizes joined by x, of Y, X, got '8'"),
    ("pod:dims=8x8", "ub-mesh:pod: dims must be 4 sizes joined by x, of alpha, Z, Y, X, got '8x8'"),
    ("superpod:dims=2", "ub-mesh:superpod: dims must be 5 sizes joined by x, of pods, alpha, Z, Y, X, got '2'"),
    ("superpod-clos:dims=2", "ub-mesh:superpod-clos: dims must be 5 sizes joined by x, of pods, alpha, Z, Y, X, got '2'"),
    ("dcn:dims=2", "ub-mesh:dcn: dims must be 6 sizes joined by x, of SuperPods, pods, alpha, Z, Y, X, got '2'"),
    ("dcn:via=tcp", "ub-mesh:dcn: via must be nic or ub, got 'tcp'"),
    ("dcn:planes=8,lanes=2", "ub-mesh:dcn: a CPU's lanes must be at most 32, got 64; take fewer planes"),
    (
        "dcn:backup=5",
        "ub-mesh:dcn: lanes from an LRS to the backup NPU and out of the rack must be at most 8, got 9; take a smaller backup",
    ),
    (
        "dcn:dims=33x8x4x4x8x8",
        "ub-mesh:dcn: ports of a spine of the DCN must be at most 256, got 264; take fewer SuperPods or planes",
    ),
    ("clos:dims=2x8", "ub-mesh:clos: dims must be 3 sizes joined by x, of racks, Y, X, got '2x8'"),
    ("rack-clos:dims=8", "ub-mesh:rack-clos: dims must be 2 sizes joined by x, of Y, X, got '8'"),
    (
        "pod:planes=8",
        "ub-mesh:pod: an NPU's lanes must be at most 72, got 88; take smaller boards or racks, fewer planes or lanes",
    ),
    (
        "rack-full:backup=9",
        "ub-mesh:rack-full: lanes from an LRS to the backup NPU must be at most 8, got 9; the LRS has no more left",
    ),
    (
        "rack-full:planes=8,lanes=2,backup=8",
        "ub-mesh:rack-full: the backup NPU's lanes must be at most 72, got 128; take a smaller backup or fewer planes",
    ),
    (
        "rack-full:dims=2x9",
        "ub-mesh:rack-full: lanes of an LRS for a board must be at most 72, got 80; take 8 NPUs on a board at most",
    ),
    (
        "rack-full:dims=12x5,lanes=2",
        "ub-mesh:rack-full: lanes of an LRS for CPUs must be at most 72, got 76; take smaller racks",
    ),
    (
        "pod:dims=8x4x8x8",
        "ub-mesh:pod: lanes of an LRS for other racks must be at most 72, got 80; "
        "take fewer racks in a row or a column, or fewer boards",
    ),
    ("superpod:dims=9x4x4x8x8", "ub-mesh:superpod: lanes of an HRS must be at most 512, got 576; take 128 racks at most"),
    (
        "pod:route=borrow",
        "ub-mesh:pod: route must be shortest or multipath or detour or spray or spray-detour or "
        "least-loaded or least-loaded-detour, got 'borrow'; "
        "HRS to borrow from are in ub-mesh:superpod",
    ),
    (
        "rack:route=borrow",
        "ub-mesh:rack: route must be shortest or multipath or detour or spray or spray-detour or "
        "least-loaded or least-loaded-detour, got 'borrow'; "
        "HRS to borrow from are in ub-mesh:superpod",
    ),
    (
        "pod:route=longest",
        "ub-mesh:pod: route must be shortest or multipath or detour or borrow or spray or spray-detour or spray-borrow or "
        "least-loaded or least-loaded-detour or least-loaded-borrow, "
        "got 'longest'",
    ),
    ("clos:dims=129x8x8", "ub-mesh:clos: lanes of a spine HRS must be at most 512, got 516; take 128 racks at most"),
    ("clos:dims=2x9x8", "ub-mesh:clos: lanes of a leaf HRS must be at most 512, got 576; take smaller racks"),
    ("clos:dims=2x1x19", "ub-mesh:clos: lanes of an LRS must be at most 72, got 76; take smaller boards"),
    (
        "rack-1d-fm-a:dims=4x17",
        "ub-mesh:rack-1d-fm-a: lanes of an HRS to NPUs must be at most 256, got 272; take smaller racks",
    ),
    ("rack-1d-fm-b:dims=4x10", "ub-mesh:rack-1d-fm-b: an NPU's lanes must be at most 72, got 76; take smaller boards"),
    (
        "rack-full:lane_rate=0Gb/s",
        "ub-mesh:rack-full: lane_rate must be a rate above 0 such as 50GB/s or 400Gb/s, got '0Gb/s'",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_ports_that_do_not_close_are_refused_in_one_line_that_says_what_works(text, message):
    with pytest.raises(InputError) as refused:
        build_topology(f"ub-mesh:{text}")
    assert str(refused.value) == message
