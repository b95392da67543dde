"""`emu show topology --route`: as text, as JSON, by number and by name; what is refused."""

import json

import pytest
from click.testing import CliRunner

from emu.errors import InputError
from launch.cli.show import show_command
from launch.shell import in_shell

TEXT = """
latency = "500ns"
[npus]
gpu = 4
[switches]
nvswitch = 1
tor = 1
[[links]]
between = ["gpu", "nvswitch"]
bandwidth = "450GB/s"
[[links]]
between = ["gpu", "tor"]
bandwidth = "50GB/s"
latency = "1us"
"""


@pytest.fixture
def route(tmp_path, monkeypatch):
    """Runs `emu show topology own.toml --route` with more words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(TEXT)

    def run(*words, topology="own.toml"):
        with in_shell():
            return CliRunner().invoke(show_command, ["topology", topology, "--route", *words], catch_exceptions=False).stdout

    return run


def test_the_ways_of_a_pair_are_a_table(route):
    assert route("0", "3").splitlines() == [
        "gpu.0 to gpu.3 on own.toml: 1 way is taken by 64 channels",
        "",
        "channels             share  links     rates  latency  way",
        "0 1 2 3 4 5 ...      1.000   0 13  450 GB/s     1 us  gpu.0 > nvswitch.0 > gpu.3",
        "as short, not taken  0.000   2 15   50 GB/s     2 us  gpu.0 > tor.0 > gpu.3",
    ]


def test_nodes_go_by_number_or_by_name(route):
    assert route("gpu.0", "tor.0") == route("0", "5")
    assert "NPU 0 > NPU 1" in route("0", "1", topology="ub-mesh:board")


def test_the_ways_are_json(route):
    found = json.loads(route("0", "3", "--json"))
    assert (found["from"], found["to"], found["channels_asked"]) == ("gpu.0", "gpu.3", 64)
    fast, slow = found["ways"]
    assert fast | {"channels": []} == {
        "nodes": ["gpu.0", "nvswitch.0", "gpu.3"],
        "links": [0, 13],
        "bandwidth_Bps": [450e9, 450e9],
        "latency_s": [5e-7, 5e-7],
        "channels": [],
        "share": 1.0,
    }
    assert fast["channels"] == list(range(64))
    assert (slow["nodes"][1], slow["latency_s"], slow["share"], slow["channels"]) == ("tor.0", [1e-6, 1e-6], 0.0, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu.0", "gpu.4"], "no node is called 'gpu.4'; did you mean gpu"),
        (["0", "9"], "show topology: --route must be numbers of 0..5, the nodes of own.toml, got '9'"),
        (["1", "1"], "own.toml: no route from node 1 to node 1"),
        (["0", "1", "--png", "x.png"], "show topology: --png must be left out where --route is given, got 'x.png'; routes"),
    ],
)
def test_what_is_no_pair_of_nodes_is_refused(route, words, message):
    with pytest.raises(InputError) as refused:
        route(*words)
    assert message in str(refused.value)


def test_a_topology_without_names_takes_numbers(route):
    with pytest.raises(InputError, match=r"--route must be numbers of 0\.\.7, the nodes of ub-mesh:board, got 'gpu.0'$"):
        route("gpu.0", "1", topology="ub-mesh:board")


@pytest.mark.parametrize(("radix", "rows", "rest"), [(16, 8, []), (18, 8, ["... and 1 more, with equal shares"])])
def test_of_many_sprayed_ways_eight_are_listed(route, radix, rows, rest):
    title, _, _, *lines = route("0", "100", topology=f"fat-tree:radix={radix},route=spray").splitlines()
    assert f": {radix // 2} ways are taken by 64 channels" in title
    assert lines[rows:] == rest
    assert {line.split("...")[1].split()[0] for line in lines[:rows]} == {f"{2 / radix:.3f}"}
    found = json.loads(route("0", "100", "--json", topology=f"fat-tree:radix={radix},route=spray"))
    assert len(found["ways"]) == radix // 2
