"""The setting of topologies whose circuits follow jobs: the sizes of jobs, which are on NPUs one after another."""

import re
from typing import Annotated

from emu.errors import must_be
from emu.topology.catalogue import SettingKind


def _read_sizes(text: str, name: str) -> tuple[int, ...]:
    """Return the sizes of jobs from a setting's text such as `8+4+4`."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}(\+[1-9][0-9]{0,8})*", text):
        raise must_be("topology", name, "sizes joined by +, such as 8+4+4", text)
    return tuple(map(int, text.split("+")))


def _read_sizes_or_none(text: str, name: str) -> tuple[int, ...]:
    """Return the sizes of jobs from a setting's text; `none`: there are no jobs."""
    return () if text == "none" else _read_sizes(text, name)


def _show_sizes(sizes: tuple[int, ...]) -> str:
    """Return the sizes of jobs as a setting's text such as `8+4+4`; `none` if there are no jobs."""
    return "+".join(map(str, sizes)) or "none"


Sizes = Annotated[tuple[int, ...], SettingKind(_read_sizes, _show_sizes)]
SizesOrNone = Annotated[tuple[int, ...], SettingKind(_read_sizes_or_none, _show_sizes)]
