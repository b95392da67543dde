"""`emu cost` as a person uses it."""


def test_a_table_says_what_each_network_costs_and_of_which_parts(emu) -> None:
    done = emu("cost", "--topology", "infinitehbd:k=2", "--topology", "nvl:72", "--prices", "infinitehbd", "--years", "5")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[2].split()[:5] == ["infinitehbd:k=2", "2880", "7.57", "2626.80", "48.10"]
    assert lines[3].split()[3:5] == ["9563.20", "75.95"]
    assert "18 NVLink switch of 28000 $ and 275 W" in done.out
    assert "prices are those of Shou et al., InfiniteHBD (SIGCOMM 2025), Table 8" in done.out
    assert "5 years, at 0.1 $ a kWh" in done.out


def test_json_has_global_bandwidth_where_it_is_asked_for(emu) -> None:
    asked = ("cost", "--topology", "rail-only:dims=8x8,planes=18", "--prices", "railx", "--json")
    assert emu(*asked).json["rows"][0]["global_GBps"] is None
    row = emu(*asked, "--across").json["rows"][0]
    assert row["global_GBps"] * 2 == row["injection_GBps"] == 1800
    assert row["dollars_per_global_GBps"] == 2 * row["dollars_per_injection_GBps"]


def test_what_cannot_be_is_one_line(emu) -> None:
    for asked, line in (
        (["--prices", "none"], "no price book is called 'none'"),
        (["--prices", "none.toml"], "prices: cannot read 'none.toml': No such file or directory"),
        (["--prices", "railx", "--years", "-1"], "cost: --years must be a number of 0 or more, got '-1'"),
        (["--prices", "infinitehbd"], "infinitehbd: prices must be of big-switch, or of any, got"),
    ):
        done = emu("cost", "--topology", "big-switch:n=8", *asked)
        assert (done.code, done.out) == (2, "")
        assert line in done.err
        assert len(done.err.splitlines()) == 1
