"""`emu repro kernels`: published figures of kernels beside the model of devices."""

import json

import pytest

from launch.data.devices import DEVICES
from launch.data.kernels import FITTED, USED, published_attention, published_moves, published_products, published_sums
from launch.papers.kernels.report import clocks_of, fit, ratios_of, rows, summaries, used_products


@pytest.fixture(scope="module")
def found():
    return rows()


def test_every_published_figure_is_told_once_with_its_source(found):
    of_attention = [row for row in found if row.kind == "attention"]
    assert len(found) - len(of_attention) == len(published_products()) + len(published_moves()) + len(published_sums())
    assert len(of_attention) == len(published_attention())
    assert all(row.source and row.ratio == pytest.approx(row.ours / row.published) for row in found)


@pytest.mark.parametrize(
    ("kind", "use", "mean"),
    [
        ("attention", "predicted", 0.05),
        ("product", "used", 0.03),
        ("FP8 product", "predicted", 0.1),
        ("copy or norm", "used", 0.1),
        ("sum of rows", "used", 0.15),
        ("sum of rows", "predicted", 0.15),
    ],
)
def test_the_model_is_near_what_was_measured(found, kind, use, mean):
    errors = {(each.kind, each.use): each.mean_error for each in summaries(found)}
    assert errors[kind, use] < mean


def test_a_used_figure_of_attention_is_predicted_from_the_others(found):
    """Else every ratio would be 1."""
    used = [row for row in found if row.kind == "attention" and row.use == USED]
    assert sum(abs(row.ratio - 1) > 1e-3 for row in used) > 0.9 * len(used)


def test_what_is_kept_is_what_the_used_products_give_and_each_constant_matters():
    kept = json.loads(FITTED.read_text())
    found = fit()
    constants = found["products"]
    assert found == kept
    used = used_products()

    def off(changed):
        return float(abs(ratios_of(used, changed, clocks_of(used, changed)) - 1).mean())

    best = off(constants)
    for name in constants:
        assert off({**constants, name: 0.0}) > best
    assert DEVICES["h200"].gemm_share == DEVICES["h100"].gemm_share == found["gemm_share"]["h100"]


def test_the_command_prints_the_errors_by_kind_and_writes_a_fit(emu, tmp_path):
    to = tmp_path / "found.json"
    done = emu("repro", "kernels", "--fit", str(to), "--json").json
    assert {each["kind"] for each in done["errors"]} >= {
        "attention",
        "product",
        "grouped product",
        "FP8 product",
        "copy or norm",
        "sum of rows",
    }
    assert json.loads(to.read_text()) == json.loads(FITTED.read_text())
    text = emu("repro", "kernels").out
    assert "TFLOP/s" in text
    assert "predicted" in text
