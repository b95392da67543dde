"""`emu repro ub-mesh`: the command, and that it counts what is built; its rows are in test_repro_rows.py."""

from launch.papers.ub_mesh import wiring
from launch.papers.ub_mesh.report import Paper
from launch.papers.ub_mesh.wiring import built


def test_counts_are_those_of_what_is_built(monkeypatch):
    """Half a Clos has other switches, which the rows of both systems tell."""
    monkeypatch.setattr(
        wiring, "build_topology", lambda word, of=wiring.build_topology: of(word.replace("clos", "clos:dims=64x8x8"))
    )
    built.cache_clear()
    paper = Paper()
    found = {
        name: paper.answer(next(each for each in paper.targets if each.id == name))
        for name in ("ub-lrs-all", "ub-afr-sw", "ub-sp")
    }
    built.cache_clear()
    assert found["ub-lrs-all"].ours == "9216;1024"
    assert found["ub-afr-sw"].ours is None
    assert found["ub-sp"].ours == 128


def test_a_table_is_printed_with_what_it_assumes(emu):
    found = emu("repro", "ub-mesh", "--table", "3", "--json").json
    assert (found["paper"], found["place"], len(found["rows"])) == ("ub-mesh", "3", 13)
    assert any("ub-mesh:rack-full" in words for words in found["assumptions"])
    text = emu("repro", "ub-mesh", "--table", "1").out
    assert "360 MB x 4992 is 1755 GB" in text
    assert emu("repro", "ub-mesh", "--table", "4").code == 2
