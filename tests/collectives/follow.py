"""A schedule with one message a rank and round, followed by hand."""

import numpy as np


def by_round(schedule, rank: int, *, of: str, other: str) -> list[tuple[int, list[int]]]:
    """Return for each round the other end of the message of which `rank` is the `of` end, and its slots."""
    found = []
    for rows in schedule.rounds():
        mine = getattr(schedule, of)[rows] == rank
        (end,) = set(getattr(schedule, other)[rows][mine].tolist())
        found.append((end, schedule.slot[rows][mine].tolist()))
    return found


def sent_by(schedule, rank: int) -> list[tuple[int, list[int]]]:
    """Return for each round to whom a rank sends, and which slots."""
    return by_round(schedule, rank, of="src", other="dst")


def received_by(schedule, rank: int) -> list[tuple[int, list[int]]]:
    """Return for each round from whom a rank receives, and which slots."""
    return by_round(schedule, rank, of="dst", other="src")


def longest_chain(schedule) -> int:
    """Messages in a row, each waiting for a slot of the one before."""
    depth = np.zeros((schedule.n_ranks, schedule.n_slots), np.int64)
    for rows in schedule.rounds():
        src, dst, slot = (c[rows] for c in (schedule.src, schedule.dst, schedule.slot))
        message = np.zeros(schedule.n_ranks, np.int64)
        np.maximum.at(message, src, depth[src, slot] + 1)
        np.maximum.at(depth, (dst, slot), message[src])
    return int(depth.max())
