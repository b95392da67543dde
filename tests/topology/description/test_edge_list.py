"""CSV: a cable a line; what is wrong is said with its line."""

import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology

HEAD = "a,b,bandwidth,latency\n"
LINK = "0,1,50GB/s,500ns\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds the topology of a text."""

    def build(text):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return build_topology("own.csv")

    return build


def test_numbers_are_npus_and_words_are_switches(built):
    topology = built(f"{HEAD}1,top,400Gb/s,1us\n0,top,50GB/s,500ns\n")
    assert (topology.n_npus, topology.n_nodes, topology.name) == (2, 3, "own.csv")
    assert topology.links.src.tolist() == [0, 2, 1, 2]
    assert topology.links.dst.tolist() == [2, 0, 2, 1]
    assert topology.links.latency_fs.tolist() == [5 * 10**8] * 2 + [10**9] * 2
    assert dict(topology.bill) == {"NPU": 2, "switch": 1, "cable": 2}


def test_the_order_of_lines_and_columns_and_of_a_cables_ends_decides_nothing(built):
    lines = ["0,1,50GB/s,500ns,1,x", "1,2,40GB/s,400ns,2,y", "2,0,30GB/s,300ns,4,x"]
    one = built("a,b,bandwidth,latency,count,tier\n" + "\n".join(lines))
    cells = [line.split(",") for line in (lines[0], *lines[:0:-1])]
    turned = "\n".join(",".join((tier, b, a, count, latency, rate)) for a, b, rate, latency, count, tier in cells)
    other = built(f"tier,a,b,count,latency,bandwidth\n{turned}\n\n")
    for name in ("src", "dst", "bandwidth_Bps", "latency_fs"):
        assert getattr(one.links, name).tolist() == getattr(other.links, name).tolist()
    assert [one.tiers[t] for t in one.links.dimension] == [other.tiers[t] for t in other.links.dimension]
    assert one.bill["cable"] == 7


def test_a_mark_of_utf8_and_empty_cells_are_no_trouble(built):
    topology = built("\ufeffa,b,bandwidth,latency,count,tier\n0, 1 ,50GB/s,500ns,,\n".encode())
    assert len(topology.links) == 2
    assert topology.tiers == ("link",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ", line 1: the head must be a,b,bandwidth,latency, and count, tier and cost if you like, got ''"),
        (
            "a,b,latency\n",
            ", line 1: the head must be a,b,bandwidth,latency, and count, tier and cost if you like, got 'a,b,latency'",
        ),
        ("a,b,bandwith,latency\n", ", line 1: unknown key 'bandwith'; did you mean bandwidth?"),
        (f"{HEAD}{LINK}0,2,-1GB/s,500ns", ", line 3: bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '-1GB/s'"),
        (f"{HEAD}{LINK}0,2,1GB/s,500", ", line 3: latency must be a time in quotes with its unit, such as '500ns', got '500'"),
        (f"{HEAD}{LINK}0,2,1GB/s", ", line 3: values must be as many as the head has, 4, got 3"),
        (f"{HEAD}{LINK}0,,1GB/s,1us", ", line 3: a and b must be names of nodes, got '0,'"),
        (f"{HEAD}{LINK}\n\n1,0,1GB/s,1us", ", line 5: a link must be written once, got 1 to 0 again, which is in line 2; for"),
        (f"{HEAD}{LINK}1,1,1GB/s,1us", ", line 3: a link must join two nodes, got 1 twice"),
        (f"{HEAD}{LINK}0,3,1GB/s,1us", ": NPUs must be called 0..2, got '3'; none is called 2"),
        (f"{HEAD}{LINK}0,01,1GB/s,1us", ": NPUs must be called 0..2, got '01'; none is called 2"),
        (f"{HEAD}x,y,1GB/s,1us", ": no node is an NPU; NPUs are called 0, 1, 2, ..., any other word is a switch"),
        (f"{HEAD}{LINK}2,3,1GB/s,1us", ": no way leads from NPU 2 to NPU 0; join them by a link or a switch"),
        (
            f"{HEAD}{LINK}0,x,1GB/s,1us\n2,y,1GB/s,1us\nx,y,1GB/s,1us",
            ": no way leads from NPU 2 to NPU 1; set npus_relay to true",
        ),
        (f'{HEAD}0,1,"1GB/s,1us', ": no CSV: unexpected end of data"),
        (b"a,b,\xff", ": no CSV: 'utf-8' codec can't decode"),
        ("a,b,bandwidth,latency,count\n0,1,1GB/s,1us,99999999", ": links must be at most 2**24, got 99999999; take fewer NPUs"),
        ("a,b,bandwidth,latency,count\n0,1,1GB/s,1us,-1", ", line 2: count must be a whole number of 1 or more, got '-1'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(built, text, message):
    with pytest.raises(InputError) as refused:
        built(text)
    assert str(refused.value).startswith(f"own.csv{message}")
    assert "\n" not in str(refused.value)
