"""Styles of tensor parallelism by module path, as a model names them, and as they are where tokens travel to their experts."""

from collections.abc import Mapping

EXPERTS = "experts"  # the style of a module that has the weights of all experts of a block
# What the styles of a block of experts become where tokens travel: inside it every rank has its own tokens.
_OWN = {"sparse": "own tokens", EXPERTS: None, "inner shared": "own shared", "inner rowwise": "own rowwise"}


def own_tokens(shards: Mapping[str, str]) -> dict[str, str]:
    """Return the styles by path where tokens travel to their experts, given the styles where they do not."""
    routers = {f"{path}.router.gate": "own rows" for path, style in shards.items() if style == "sparse"}
    kept = {path: _OWN.get(style, style) for path, style in shards.items()}
    return {path: style for path, style in kept.items() if style is not None} | routers
