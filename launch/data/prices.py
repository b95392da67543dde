"""The price books that Emu comes with: two of one paper each, and Emu's own, which prices every published fabric."""

from pathlib import Path

from emu.registry import unknown
from emu.study.cost import PriceBook, read_book

_FOLDER = Path(__file__).with_name("prices")
DEFAULT = "emu"
BOOKS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def find_book(text: str) -> PriceBook:
    """Return a price book by its name, or from a file.

    Raises:
        InputError: nothing has that name, or as `read_book`.
    """
    if text.endswith(".toml"):
        return read_book(Path(text), text)
    if text not in BOOKS:
        raise unknown("price book", text, BOOKS)
    return read_book(_FOLDER / f"{text}.toml", f"{text}.toml")
