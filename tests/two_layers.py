"""The smallest model that tests train: its file, as a word for `--model`, and itself."""

from pathlib import Path

from emu.model.model import find_model

TWO_LAYERS = str(Path(__file__).parent / "data" / "two-layers.toml")
MODEL = find_model(TWO_LAYERS)
