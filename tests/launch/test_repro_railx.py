"""`emu repro railx`: the command; its rows are in test_repro_rows.py."""


def test_the_command_prints_a_table_and_json(emu) -> None:
    done = emu("repro", "railx", "--table", "3")
    assert done.code == 0
    assert next(line for line in done.out.splitlines() if line.startswith("rx-t3-Hx7-2ft-cost")).split()[1:3] == [
        "5822",
        "5822",
    ]
    told = emu("repro", "railx", "--table", "3", "--json").json
    assert [row["verdict"] for row in told["rows"]] == ["met", "met", "missed", "met"]
    assert "prices those of RailX" in told["assumptions"][0]
