"""`emu cost` as a person uses it."""

import pytest


def test_a_table_says_what_each_network_costs_and_of_which_parts(emu) -> None:
    done = emu("cost", "--topology", "infinitehbd:k=2", "--topology", "nvl:72", "--prices", "infinitehbd", "--years", "5")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[2].split()[:5] == ["infinitehbd:k=2", "2880", "7.57", "2626.80", "48.10"]
    assert lines[3].split()[3:5] == ["9563.20", "75.95"]
    assert "18 NVLink switch of 28000 $ and 275 W" in done.out
    assert "all prices are from one book: Shou et al., InfiniteHBD (SIGCOMM 2025), Table 8" in done.out
    assert "5 years, at 0.1 $ a kWh" in done.out


def test_json_has_global_bandwidth_where_it_is_asked_for(emu) -> None:
    asked = ("cost", "--topology", "rail-only:dims=8x8,planes=18", "--prices", "railx", "--json")
    assert emu(*asked).json["rows"][0]["global_GBps"] is None
    row = emu(*asked, "--across").json["rows"][0]
    assert row["global_GBps"] * 2 == row["injection_GBps"] == 1800
    assert row["dollars_per_global_GBps"] == 2 * row["dollars_per_injection_GBps"]


STEP = ("--model", "llama-tiny", "--plan", "tp=2,dp=2", "--global-batch", "4", "--seq", "64")


def test_performance_over_tco_is_that_of_the_step_that_emu_estimate_tells(emu) -> None:
    words = [f"fat-tree:radix=8,planes={planes}" for planes in (1, 4)]
    topologies = [part for word in words for part in ("--topology", word)]
    paid = ("--prices", "railx", "--years", "4", "--npu", "dollars=30000,watts=700")
    rows = emu("cost", *topologies, *paid, *STEP, "--json").json["rows"]
    for row, word in zip(rows, words, strict=True):
        step = emu("estimate", "--topology", word, *STEP, "--json").json
        tco = row["dollars"] + 32 * 30000 + row["energy_dollars"] + 32 * 0.7 * 8760 * 4 * 0.1
        assert row["tokens_per_s"] == step["tokens_per_s"]
        assert row["tco_dollars"] == pytest.approx(tco)
        assert row["tokens_per_s_per_tco_dollar"] * tco * 4 / 32 == pytest.approx(step["tokens_per_s"])
    text = emu("cost", *topologies, *paid, *STEP).out
    ratio = rows[1]["tokens_per_s_per_tco_dollar"] / rows[0]["tokens_per_s_per_tco_dollar"]
    assert text.splitlines()[3].split()[-1] == f"{ratio:.2f}"
    assert "an NPU costs 30000 $ and draws 700 W" in text


def test_a_gigabyte_a_second_of_an_all_to_all_has_its_price(emu) -> None:
    asked = ("cost", "--topology", "rail-only:dims=8x8,planes=18", "--prices", "railx", "--all-to-all", "--json")
    row = emu(*asked).json["rows"][0]
    assert 0 < row["exchange_GBps"] <= row["injection_GBps"]
    assert row["dollars_per_exchange_GBps"] == row["dollars_per_npu"] / row["exchange_GBps"]


FABRICS = (
    "ub-mesh:pod",
    "hpn:pod",
    "railx:torus:m=4,n=2,nodes=8x8",
    "infinitehbd",
    "nvl:72",
    "fat-tree:radix=64",
    "tpuv4:cubes=4x4x4",
)


def test_all_fabrics_stand_in_one_table_from_the_lowest_prices_to_the_highest(emu) -> None:
    asked = ("cost", *(part for word in FABRICS for part in ("--topology", word)))
    rows, lines = emu(*asked, "--json").json["rows"], emu(*asked).out.splitlines()
    assert [line.split()[0] for line in lines[2 : 2 + len(FABRICS)]] == [row["topology"] for row in rows]
    for row, line in zip(rows, lines[2:], strict=False):
        low, high = (f"{of['dollars_per_npu']:.2f}" for of in (row, row["high"]))
        assert f"{low} to {high}" in line
        for part, price in row["parts"].items():
            assert price["dollars"] <= row["high"]["parts"][part]["dollars"]
            assert any(note.endswith(f": {price['source']}") and part in note for note in lines), part
    assert "18 NVLink switch of 28000 $ and 275 W, 5184 DAC cable of 35.6 to 125 $ and 0.1 W" in "\n".join(lines)
    assert "- low to high: at the lowest and at the highest price of each part, where sources differ" in lines


def test_a_job_on_dearer_parts_gets_less_for_the_money_and_is_compared_at_the_same_end(emu) -> None:
    words = ("--topology", "nvl:72", "--topology", "fat-tree:radix=8", "--years", "4", *STEP)
    first, second = emu("cost", *words, "--json").json["rows"]
    for row in (first, second):
        assert row["high"]["tco_dollars"] > row["tco_dollars"]
        assert row["high"]["tokens_per_s_per_tco_dollar"] < row["tokens_per_s_per_tco_dollar"]
        assert "step_time_s" not in row["high"]
    lines = emu("cost", *words).out.splitlines()
    ends = [second_of["tokens_per_s_per_tco_dollar"] / first_of["tokens_per_s_per_tco_dollar"]
            for second_of, first_of in ((second, first), (second["high"], first["high"]))]  # fmt: skip
    assert lines[2].split()[-1] == "1.00"
    assert lines[3].endswith(" to ".join(f"{ratio:.2f}" for ratio in sorted(ends)))


def test_a_part_without_a_price_is_one_line_with_the_reason(emu) -> None:
    done = emu("cost", "--topology", "sipac:r=4,L=2")
    assert (done.code, done.out) == (2, "")
    assert "'WSS' (no source prints the price of a wavelength-selective switch)" in done.err.splitlines()[-1]


def test_networks_without_a_price_are_named_and_the_others_have_their_rows(emu) -> None:
    asked = ("cost", *(f"--topology={name}" for name in ("sipac:r=4,L=2", "nvl:72", "servers:nodes=2")))
    alone, done = emu("cost", "--topology", "nvl:72"), emu(*asked)
    assert (done.code, done.out) == (1, alone.out)
    [line] = done.err.splitlines()
    assert line.startswith("emu: cost: 2 of 3 networks are not priced: price book emu: no price for ")
    assert "'WSS'" in line
    assert "of sipac:r=4,L=2; " in line
    assert "'rail switch'" in line
    assert "of servers:nodes=2; " in line
    found = emu(*asked, "--json").json
    assert [row["topology"] for row in found["rows"]] == ["nvl:72"]
    assert [*found["unpriced"]] == ["sipac:r=4,L=2", "servers:nodes=2"]
    none = emu("cost", "--topology", "nvl:72", "--topology", "torus:4x4,1GB/s,1us", "--prices", "ub-mesh")
    assert (none.code, none.out, len(none.err.splitlines())) == (2, "", 1)


def test_what_cannot_be_is_one_line(emu) -> None:
    for asked, line in (
        (["--prices", "none"], "no price book is called 'none'"),
        (["--prices", "none.toml"], "prices: cannot read 'none.toml': No such file or directory"),
        (["--prices", "railx", "--years", "-1"], "cost: --years must be a number of 0 or more, got '-1'"),
        (["--prices", "infinitehbd"], "infinitehbd: prices must be of big-switch, or of any, got"),
        (
            ["--prices", "railx", "--model", "llama3-8b", "--seq", "8"],
            "cost: --model, --plan, --global-batch and --seq go together; add",
        ),
        (
            [
                "--prices",
                "railx",
                "--npu",
                "watts=x",
                "--model",
                "llama-tiny",
                "--plan",
                "dp=8",
                "--global-batch",
                "8",
                "--seq",
                "8",
            ],
            "cost: --npu must be dollars=30000,watts=700, or one of them, of 0 or more",
        ),
    ):
        done = emu("cost", "--topology", "big-switch:n=8", *asked)
        assert (done.code, done.out) == (2, "")
        assert line in done.err
        assert len(done.err.splitlines()) == 1
