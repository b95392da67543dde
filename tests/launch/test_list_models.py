"""`emu list models` has every model of the catalogue with its sizes and where they come from."""

from emu.model.model import MODELS


def test_every_model_is_listed_with_its_parameters_and_sizes(emu) -> None:
    rows = {row["name"]: row for row in emu("list", "models", "--json").json}
    assert rows.keys() == {name for name, _ in MODELS}
    large = rows["deepseek-v3"]
    assert (large["parameters"], large["active_parameters"]) == (671_026_404_352, 37_552_282_624)
    assert (large["layers"], large["hidden"], large["heads"], large["experts"], large["top_k"]) == (61, 7168, 128, 256, 8)
    assert large["architecture"] == "deepseek"
    assert all(row["source"] for name, row in rows.items() if not name.endswith(("-tiny", "-small")))
    assert rows["llama3-8b"]["active_parameters"] == rows["llama3-8b"]["parameters"]


def test_the_table_is_short_enough_to_read(emu) -> None:
    lines = emu("list", "models").out.splitlines()
    assert max(map(len, lines)) <= 100
    (row,) = (line for line in lines if line.startswith("llama3.1-405b "))
    assert row.split()[1:3] == ["405.9", "B"]
