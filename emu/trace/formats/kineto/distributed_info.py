"""The job of a profile, from its field `distributedInfo`: the rank, the number of ranks and the process groups."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.trace.formats.rank_group import MOST_RANKS, is_count, told_ranks


class DistributedInfo(NamedTuple):
    """The entries of a profile on its job: the rank, the number of ranks, and the process groups with their descriptions."""

    rank: int | None  # None: the profile does not say
    world: int | None  # the number of ranks of the job; None: the profile does not say
    groups: Mapping[str, tuple[int, ...]]  # the ranks of each process group, by its name
    labels: Mapping[str, str]  # the description of each process group, by its name


def distributed_info(told: Any, file: str) -> DistributedInfo:
    """Return the rank, the number of ranks and the process groups that a profile states.

    Args:
        told: The value of `distributedInfo`; None: the profile has none.
        file: The name of the file in error messages.

    Raises:
        InputError: it is not as PyTorch writes it.
    """
    try:
        entries = {} if told is None else told
        rank, world = entries.get("rank"), entries.get("world_size")
        config = [(str(of["pg_name"]), of) for of in entries.get("pg_config") or ()]
        groups = {name: told_ranks(of["ranks"]) for name, of in config if of.get("ranks")}
        labels = {name: str(of.get("pg_desc", "")) for name, of in config}
        for name, value in (("rank", rank), ("world_size", world)):
            if value is not None and not is_count(value, MOST_RANKS):
                raise ValueError(f"must have a whole number below 2**24 as {name}, got {str(value)[:40]}")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = str(error) if str(error).startswith("must ") else f"is not as PyTorch writes it ({type(error).__name__})"
        raise InputError(f"profile: distributedInfo of {file!r} {why}; profile again") from None
    return DistributedInfo(rank, world, groups, labels)
