"""Answers without what no two runs have in common."""

from typing import Any


def without_wall(value: Any) -> Any:
    """A value without the times that this host took."""
    if isinstance(value, dict):
        return {key: without_wall(each) for key, each in value.items() if not key.startswith("wall_")}
    return [without_wall(each) for each in value] if isinstance(value, list | tuple) else value
