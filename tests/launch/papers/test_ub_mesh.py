"""`emu repro ub-mesh`: the command, and that it counts what is built; its rows are in test_rows.py."""

import numpy as np
import pytest
from matplotlib.image import imread

from launch.papers import networks
from launch.papers.networks import build_once
from launch.papers.ub_mesh import counts
from launch.papers.ub_mesh.report import PAPER
from launch.papers.ub_mesh.setting import MODELS, NPUS, model_of, plan_of
from launch.papers.ub_mesh.training import BASES, lanes, machine, plan_at


def test_counts_are_those_of_what_is_built(monkeypatch):
    """Half a Clos has other switches, which the rows of both systems tell."""
    monkeypatch.setattr(
        networks, "build_topology", lambda word, of=networks.build_topology: of(word.replace("clos", "clos:dims=64x8x8"))
    )
    build_once.cache_clear()
    found = {
        name: PAPER.answer(next(each for each in PAPER.targets if each.id == name))
        for name in ("ub-hrs98", "ub-afr-sw", "ub-sp")
    }
    build_once.cache_clear()
    assert found["ub-hrs98"].ours == pytest.approx(100 * (1 - 64 / 2048))
    assert found["ub-afr-sw"].ours is None
    assert found["ub-sp"].ours == 128


def test_a_table_is_printed_with_what_it_assumes(emu):
    found = emu("repro", "ub-mesh", "--table", "3", "--json").json
    assert (found["paper"], found["place"], len(found["rows"])) == ("ub-mesh", "3", 11)
    assert any("ub-mesh:rack-full" in words for words in found["assumptions"])
    text = emu("repro", "ub-mesh", "--table", "1").out
    assert "360 MB x 4992 is 1755 GB" in text
    assert emu("repro", "ub-mesh", "--table", "4").code == 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("seq", "cp"), [(8192, 1), (65536, 8), (2**20, 128)])
def test_a_plan_has_a_board_for_tp_and_8192_tokens_a_rank_as_far_as_npus_go(name, seq, cp):
    plan = plan_of(name, seq)
    assert (plan.world, plan.tp, plan.passes) == (NPUS, 8, 13)
    assert plan.cp == min(cp, NPUS // 8 // plan.pp)
    assert plan.ep == (8 if model_of(name).experts else 1)


@pytest.mark.parametrize("name", BASES)
def test_a_cluster_that_grows_keeps_the_tokens_of_a_rank_and_the_microbatches(name):
    small, large = plan_at(name, BASES[name]), plan_at(name, 64 * BASES[name])
    assert (small.world, large.world) == (BASES[name], 64 * BASES[name])
    assert (small.cp, small.passes, small.seq) == (large.cp, large.passes, large.seq) == (small.cp, 13, 2**18)
    assert small.pp >= large.pp


@pytest.mark.parametrize("npus", [128, 256, 512, 1024, 4096])
def test_a_part_of_a_superpod_has_so_many_npus(npus):
    assert build_once(machine(npus)).n_npus == npus


def test_beyond_a_superpod_there_are_several():
    assert machine(2**16) == "ub-mesh:dcn:dims=8x8x4x4x8x8"


def test_more_lanes_out_of_a_rack_leave_those_inside_as_they_are():
    wide, usual = lanes(32).built(), lanes(16).built()
    times = wide.links.bandwidth_Bps / usual.links.bandwidth_Bps
    inside = (usual.links.src < usual.n_npus) & (usual.links.dst < usual.n_npus)
    assert set(times[inside].tolist()) == {1.0}
    assert set(times[~inside].tolist()) == {2.0}


def test_more_of_a_clos_that_is_network_makes_it_dearer_beside_ub_mesh():
    usual = counts.ratios(0.67)
    assert np.all(np.diff([usual[name] for name in ("1D-FM + x16 Clos", "1D-FM + x32 Clos", "x64T Clos")]) > 0)
    assert counts.ratios(0.9)["x64T Clos"] > usual["x64T Clos"]


def test_a_figure_is_drawn(emu, tmp_path):
    path = tmp_path / "21.png"
    assert emu("repro", "ub-mesh", "--figure", "21", "--png", str(path), "--cache", str(tmp_path)).code == 0
    assert imread(path).shape[1] == 1200


def test_no_row_is_a_number_that_the_paper_does_not_print():
    """Rows that only this project derived were met by their own arithmetic."""
    assert not {"ub-mr-loss", "ub-mp-a2a", "ub-hrs-clos", "ub-lrs-all"} & {target.id for target in PAPER.targets}
    derived = [target for target in PAPER.targets if "derived" in target.assumed]
    assert {target.id for target in derived} >= {"ub-hrs-ub", "ub-afr-sw"}
