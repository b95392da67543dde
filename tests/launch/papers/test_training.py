"""The UB-Mesh paper's figures 17, 19 and 20 are worked out from steps whose times are written down here."""

from types import SimpleNamespace

import pytest

from launch.papers.ub_mesh.setting import CLOS, LONG, RACKS, SHORT, UB, A, B, Fabric
from launch.papers.ub_mesh.training import TRAINING, lanes, mean_relative

MODELS = ("LLAMA-70B", "GPT3-175B", "Dense-1T", "GPT4-2T", "MoE-10T")
# Milliseconds on the Clos; on a rack so many per cent more, by model, and a tenth of that more for each longer sequence.
SEQS = dict(zip((*SHORT, *LONG), (100, 110, 120, 200), strict=True))
MORE = {UB: (6.0, 5.0, 4.0, 7.0, 8.0), A: (3.0, 4.5, 2.0, 6.0, 7.5), B: (1.0, 2.0, 1.0, 3.0, 3.0), CLOS: (0.0,) * 5}
# On racks that HRS join, and on those of a mesh by strategy: per cent more.
BETWEEN = "ub-mesh:superpod-clos"
STRATEGIES = {
    "": (0.2, 0.3, 0.1, 0.8, 0.9),
    ":route=detour": (0.1, 0.2, 0.1, 0.5, 0.6),
    ":route=borrow": (0.0, 0.1, 0.0, 0.4, 0.4),
}
# With so many of the 16 lanes: per cent more.
LANES = {8: (1.0, 2.0, 1.5, 0.5, 4.0), 16: (0.0, 0.0, 0.0, 0.0, 0.0), 32: (-1.0, -3.0, -2.0, -0.5, -4.0)}


def time_ms(rack_percent, model, seq):
    longer = [*SEQS].index(seq)
    return SEQS[seq] * (1 + rack_percent[MODELS.index(model)] / 100 * (1 + longer / 10))


class Figure17:
    """Steps on racks."""

    def of(self, model, seq, fabric):
        (rack,) = (name for name, word in RACKS.items() if fabric == Fabric(word))
        return SimpleNamespace(step_time_s=time_ms(MORE[rack], model, seq) / 1000)


class Figure19:
    """Steps between racks."""

    def of(self, model, seq, fabric):
        assert fabric.wider == 1
        more = (0.0,) * 5 if fabric.word == BETWEEN else STRATEGIES[fabric.word.removeprefix(RACKS[UB])]
        return SimpleNamespace(step_time_s=time_ms(more, model, seq) / 1000)


class Figure20:
    """Steps on racks with fewer or more lanes out of them."""

    def of(self, model, seq, fabric):
        assert fabric.word == RACKS[UB]
        return SimpleNamespace(step_time_s=time_ms(LANES[fabric.wider * 16], model, seq) / 1000)


def told(steps, row):
    return TRAINING[row](SimpleNamespace(steps=steps()), None)


def percent(rack, model, seqs):
    """Return the performance in per cent of the Clos's, which is its time by the rack's, as the mean over sequences."""
    return (
        100 * sum(1 / (1 + MORE[rack][MODELS.index(model)] / 100 * (1 + [*SEQS].index(seq) / 10)) for seq in seqs) / len(seqs)
    )


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_figure_17_is_the_performance_by_the_clos_in_the_mean_over_sequences():
    of_models = {model: percent(UB, model, SEQS) for model in MODELS}
    assert told(Figure17, "ub-f17-lo").ours == pytest.approx(of_models["MoE-10T"], rel=1e-12)
    assert told(Figure17, "ub-f17-hi").ours == pytest.approx(of_models["Dense-1T"], rel=1e-12)
    assert of_models["MoE-10T"] == min(of_models.values())
    assert of_models["Dense-1T"] == max(of_models.values())
    for row, rack, seqs in (("2d", UB, SHORT), ("a", A, SHORT), ("b", B, SHORT), ("long", UB, LONG)):
        expected = mean(percent(rack, model, seqs) for model in MODELS)
        assert told(Figure17, f"ub-f17b-{row}").ours == pytest.approx(expected, rel=1e-12)
        assert mean_relative(Figure17(), rack, seqs) == pytest.approx(expected, rel=1e-12)


def test_what_other_racks_gain_is_per_cent_of_the_performance_of_the_2d_mesh():
    gains = {rack: [100 * (percent(rack, m, SEQS) / percent(UB, m, SEQS) - 1) for m in MODELS] for rack in (A, B)}
    assert told(Figure17, "ub-f17-1dfma").ours == pytest.approx(gains[A][0], rel=1e-9)
    others = told(Figure17, "ub-f17-1dfma-o")
    assert others.ours == pytest.approx(max(gains[A][1:]), rel=1e-9)
    assert max(gains[A]) > max(gains[A][1:])
    assert f"GPT3-175B {gains[A][1]:.2f}" in others.notes[0]
    assert told(Figure17, "ub-f17-1dfmb").ours == pytest.approx(mean(gains[B]), rel=1e-9)


def test_the_gap_is_that_of_the_slowest_model_and_not_what_the_paper_prints(monkeypatch):
    gap = told(Figure17, "ub-7pct")
    assert gap.ours == pytest.approx(100 - told(Figure17, "ub-f17-lo").ours, abs=1e-9)
    monkeypatch.setitem(MORE, UB, (20.0,) * 5)
    assert told(Figure17, "ub-7pct").ours > gap.ours + 5


def test_the_order_of_racks_holds_where_each_is_slower_than_the_next(monkeypatch):
    assert told(Figure17, "ub-f17-order").holds
    assert told(Figure17, "ub-f17-order").ours == "2D-FM < 1D-FM-A < 1D-FM-B < Clos"
    monkeypatch.setitem(MORE, A, (0.1,) * 5)
    assert not told(Figure17, "ub-f17-order").holds
    assert told(Figure17, "ub-f17-order").ours == "2D-FM < 1D-FM-B < 1D-FM-A < Clos"


def loss(strategy, model):
    more = STRATEGIES[strategy][MODELS.index(model)] / 100
    return 100 - 100 * mean(1 / (1 + more * (1 + longer / 10)) for longer in range(4))


def test_figure_19_is_the_performance_that_is_lost_against_racks_that_hrs_join(monkeypatch):
    assert told(Figure19, "ub-f19-short").ours == pytest.approx(loss("", "GPT4-2T"), rel=1e-9)
    assert told(Figure19, "ub-f19-apr").ours == pytest.approx(loss(":route=borrow", "GPT4-2T"), rel=1e-9)
    order = told(Figure19, "ub-f19-order")
    assert order.ours == ", ".join(f"{loss(each, 'GPT4-2T'):.2f}" for each in STRATEGIES) + " %"
    assert order.holds
    assert f"GPT3-175B: shortest {loss('', 'GPT3-175B'):.2f}" in order.notes[0]
    for wrong in ({"": (0, 0.5, 0, 0.8, 0)}, {":route=detour": (0, 0, 0, 0.9, 0)}, {":route=borrow": (0, 0, 0, 0.6, 0)}):
        with monkeypatch.context() as changed:
            for strategy, more in wrong.items():
                changed.setitem(STRATEGIES, strategy, more)
            assert not told(Figure19, "ub-f19-order").holds


def test_figure_20_is_what_more_lanes_gain_of_the_performance_with_fewer():
    assert (lanes(8).wider, lanes(16).wider, lanes(32).wider) == (0.5, 1.0, 2.0)
    for row, (less, more, seqs) in {"ub-f20-x8": (8, 16, SHORT), "ub-f20-x16": (16, 32, LONG)}.items():
        gains = [100 * mean(time_ms(LANES[less], m, seq) / time_ms(LANES[more], m, seq) for seq in seqs) - 100 for m in MODELS]
        assert told(Figure20, row).ours == pytest.approx(mean(gains), rel=1e-9)
