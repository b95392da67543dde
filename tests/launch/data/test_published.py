"""Published kernels and runs, row by row: the figures of a row, and the constants that follow from it."""

import json

import pytest

from emu.errors import InputError
from emu.trace.device.attention_rate import AttentionRate
from emu.trace.device.device import Device
from launch.data import devices, kernels
from launch.data.devices import DEVICES, find_device
from launch.data.fitted import Blind, Fitted, read_clock, read_fitted, write_fitted
from launch.data.kernels import (
    KERNELS_OF,
    USED,
    PublishedAttention,
    PublishedProduct,
    PublishedSum,
    attention_of,
    kernel_constants,
    published_attention,
    published_moves,
    published_products,
    published_sums,
    rates_of,
)
from launch.data.presets import BOOKS, DEFAULT, GPUS, LOG, SERVERS, find_book, production_log


def row_of(**more):
    row = PublishedAttention("a", "fa9", "bfloat16", 96, "causal", "forward", 3000, 250e12, USED, "of its own")
    return row._replace(**more)


@pytest.mark.parametrize("published", [published_attention, published_products, published_moves, published_sums])
def test_every_field_of_a_published_row_has_the_type_of_its_class(published):
    for row in published():
        for name, field in type(row).__annotations__.items():
            assert type(getattr(row, name)) is field, name


def test_a_rate_of_both_passes_is_one_of_each_and_every_other_of_its_own():
    own = AttentionRate("fa9", 2, 96, causal=True, backward=False, length=3000, share=0.25)
    assert list(rates_of(row_of(), 1000e12)) == [own]
    assert list(rates_of(row_of(direction="backward"), 500e12)) == [own._replace(backward=True, share=0.5)]
    assert list(rates_of(row_of(direction="both"), 1000e12)) == [own, own._replace(backward=True)]
    assert list(rates_of(row_of(mask="none", dtype="float8_e4m3fn"), 1000e12)) == [own._replace(causal=False, item_bytes=1)]


def test_a_device_has_the_rates_of_its_own_rows_that_are_used(monkeypatch):
    rows = (row_of(), row_of(use="predicted"), row_of(device="b"), row_of(dtype="float16", head=64, direction="both"))
    monkeypatch.setattr(kernels, "published_attention", lambda: rows)
    found = attention_of("a", {"bfloat16": 1000e12, "float16": 500e12})
    assert [(rate.head, rate.backward, rate.share) for rate in found] == [(96, False, 0.25), (64, False, 0.5), (64, True, 0.5)]
    assert attention_of("c", {}) == ()


def test_a_product_takes_its_flops_at_its_rate_and_a_sum_adds_its_elements_in_its_time():
    product = PublishedProduct("a", "box", "full", "gemm", "bfloat16", 3, 5, 7, 11, 2e12, USED, "")
    assert product.seconds == 2 * 3 * 5 * 7 * 11 / 2e12
    assert product.of == ("box", "gemm", "bfloat16")
    assert PublishedSum("a", "add", "rows", "bfloat16", 6, 4, 5, 100, 3e-6, USED, "").rate == 6 * 5 / 3e-6


@pytest.mark.parametrize(
    ("name", "read", "column", "unit"),
    [
        ("attention.csv", published_attention, "tflops", 1e12),
        ("products.csv", published_products, "tflops", 1e12),
        ("moves.csv", published_moves, "GBps", 1e9),
        ("sums.csv", published_sums, "us", 1e-6),
    ],
)
def test_every_row_of_a_file_is_read_in_its_order_with_its_numbers(name, read, column, unit):
    lines = (kernels.KERNELS / name).read_text().splitlines()
    head, rows = lines[0].split(","), [list(row) for row in read()]
    assert len(rows) == len(lines) - 1 > 3
    measured = "seconds" if column == "us" else "rate"
    for line, row in zip(lines[1:], read(), strict=True):
        words = dict(zip(head, line.split(","), strict=False))
        if '"' in line:  # words with commas
            continue
        assert getattr(row, measured) == pytest.approx(float(words[column]) * unit)
        same = set(head) & set(type(row)._fields)
        assert {field: str(getattr(row, field)) for field in same} == {field: words[field] for field in same}


def test_constants_of_kernels_are_those_that_are_kept_for_the_device_whose_products_it_has():
    kept = json.loads(kernels.FITTED.read_text())
    for name in ("h100", "h800", "h200"):
        own = KERNELS_OF.get(name, name)
        found = kernel_constants(name)
        assert found.pop("gemm_share") == kept["gemm_share"][own]
        assert found.pop("fp8_share") == kept["fp8_share"].get(own, {})
        assert found.pop("atomic_adds_per_s") == kept["atomic_adds_per_s"].get(own, 0.0)
        assert found == kept["products"]
    assert kernel_constants("tpuv4") == {}
    without = [name for name in kept["gemm_share"] if name not in kept["atomic_adds_per_s"]]
    assert all(kernel_constants(name)["atomic_adds_per_s"] == 0.0 for name in without)


FITTED = Fitted(
    ("one", "two"), {"clock": 0.9}, {"one": {"clock": 0.8}}, {"dense": Blind(5, 0.01, 0.2)}, {"dense": {"two": (1.0, 0.9)}}
)


def test_what_a_fit_found_is_read_as_it_was_written(tmp_path):
    write_fitted({"mine": FITTED}, tmp_path / "fitted.json")
    assert read_fitted(tmp_path / "fitted.json") == {"mine": FITTED}
    assert (tmp_path / "fitted.json").read_text().endswith("}\n")


def test_what_is_fitted_without_blind_halves_has_no_errors_and_is_read_so(tmp_path):
    plain = {"plain": Fitted(("one",), {"clock": 0.9}, {}), "other": Fitted(("two",), {}, {})}
    assert (plain["plain"].blind, plain["plain"].unseen) == ({}, {})
    write_fitted(plain, tmp_path / "fitted.json")
    assert read_fitted(tmp_path / "fitted.json") == plain


def test_constants_for_a_model_have_not_seen_it():
    assert FITTED.for_model("one") == ({"clock": 0.8}, ("two",))
    assert FITTED.for_model("three") == ({"clock": 0.9}, ("one", "two"))


def test_a_clock_is_read_with_the_run_that_sets_it(tmp_path):
    (tmp_path / "clock.json").write_text('{"a": {"clock": 0.75, "set_by": "x"}, "b": {"clock": 1, "set_by": "y"}}')
    assert read_clock("a", tmp_path / "clock.json") == (0.75, "x")
    clock, run = read_clock("h100-500w")
    assert DEVICES["h100-500w"].clock == pytest.approx(clock * DEVICES["h100"].clock, abs=5e-5)
    assert DEVICES["h100-500w"].fitted_on == f"{DEVICES['h100'].fitted_on}; its clock on the run {run} of torchtitan"


def test_what_a_device_was_fitted_on_is_said():
    h100 = DEVICES["h100"].fitted_on
    assert h100.startswith("published kernels and published steps of ")
    assert DEVICES["h800"].fitted_on == DEVICES["h200"].fitted_on == h100
    assert DEVICES["tpuv4"].fitted_on == ""
    assert DEVICES["h800"].attention == DEVICES["h100"].attention
    assert {row.kernel for row in DEVICES["h200"].attention} == {
        row.kernel for row in published_attention() if (row.device, row.use) == ("h200", USED)
    }


def test_a_device_of_a_users_own_is_filed_once_under_its_name(monkeypatch):
    monkeypatch.setattr(devices, "DEVICES", dict(DEVICES))
    monkeypatch.setattr(devices, "_OWN", type(devices._OWN)("device", "devices"))

    for flops in (1e12, 2e12):  # a cell of a notebook that runs again defines its function again

        def build(name="mine", flops=flops):
            return Device(name, {"float32": flops}, 1e12)

        assert devices.device(build) is build
        assert devices.DEVICES["mine"].peak_flops == {"float32": flops}
    assert find_device("mine:gemm_share=0.25").gemm_share == 0.25
    with pytest.raises(InputError, match="device: name must be a name that no other device has, got 'h100'"):
        devices.device(lambda: Device("h100", {}, 1.0))


@pytest.mark.parametrize(
    ("text", "dtype", "line"),
    [
        ("h100:sxm", "bfloat16", "no device is called 'h100:sxm'; "),
        ("mine.toml:sxm", "bfloat16", "no device is called 'mine.toml:sxm'; "),
        ("h100:gemm=0.5", "bfloat16", "no setting of a device is called 'gemm'; did you mean gemm_share"),
        ("h100:gemm_share=half", "bfloat16", "device: gemm_share must be a share above 0 and at most 1, got 'half'"),
        ("h100:launch_overhead=5", "bfloat16", "launch_overhead must be a time of 0 or more"),
        ("h100", "bfloat17", "no dtype is called 'bfloat17'; did you mean bfloat16"),
        ("a100-80g", "float8_e4m3fn", "no dtype of a100-80g is called 'float8_e4m3fn'"),
    ],
)
def test_a_device_that_nobody_has_is_one_line(text, dtype, line):
    with pytest.raises(InputError) as error:
        find_device(text, dtype)
    assert str(error.value).startswith(line)


def test_settings_of_a_device_change_what_they_name_alone():
    found = find_device("h100:hbm_efficiency=0.25,launch_overhead=3us")
    assert (found.hbm_efficiency, found.launch_overhead_s) == (0.25, 3e-6)
    assert (found.gemm_share, found.name) == (DEVICES["h100"].gemm_share, "h100")
    assert find_device("h100") == DEVICES["h100"]


def test_books_and_the_log_are_those_that_are_kept(tmp_path):
    assert set(BOOKS) == {"emu", "infinitehbd", "railx"}
    assert list(BOOKS) == sorted(BOOKS)
    assert DEFAULT in BOOKS
    (tmp_path / "mine.toml").write_text('name = "own"\n[any.parts]\nswitch = { dollars = 1 }\n')
    assert find_book(str(tmp_path / "mine.toml")).name == "own"
    log = production_log()
    spells = LOG.read_text().splitlines()[1:]
    assert (log.units, len(log.unit)) == (SERVERS, len(spells))
    assert (SERVERS, GPUS) == (400, 8)
    assert 348 < log.days < 349
