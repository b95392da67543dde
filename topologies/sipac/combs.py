"""Which wavelengths a link gets: lines of its sender's comb, none of them twice at a sender or at a receiver.

Flex-SiPAC 3.C routes each WSS by colouring a graph of signals, with DSatur. Signals clash where they share a sender or a
receiver, so the colours are those of the edges of a bipartite graph, and as many as its largest degree always do (König
1916), not only for one WSS: a comb has each line once for all its CU's ports.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from topologies.sipac.levels import Neighbours


class Lines(NamedTuple):
    """Signals, in the order of links; S of them."""

    link: I64  # [S]
    line: I64  # [S] 0..w-1


def comb_lines(near: Neighbours, wavelengths: I64, w: int, before: Lines | None = None) -> Lines:
    """The comb lines of each link.

    Args:
        near: Links.
        wavelengths: [E] how many each gets.
        w: Lines of a comb.
        before: Of the same links; what can stay stays, but for the chains of lines that two by two change places so that
            new signals find room.

    Raises:
        InputError: a CU sends or receives more than w.
    """
    most = int(np.concatenate(near.sums(wavelengths)).max(initial=0))
    if most > w:
        raise must_be("comb lines", "wavelengths in and out of a CU", f"at most {w}", most)
    combs = _Combs(near, w)
    left = wavelengths.copy()
    for link, line in zip(*_kept(before, wavelengths), strict=True) if before else ():
        combs.put(link, line)
        left[link] -= 1
    for link in np.repeat(np.arange(len(left)), left).tolist():
        combs.add(link)
    held = np.array(combs.sent)
    cu, at = np.nonzero(held >= 0)
    order = np.lexsort((at, held[cu, at]))
    return Lines(column(held[cu, at][order], np.int64), column(at[order], np.int64))


def _kept(before: Lines, wavelengths: I64) -> tuple[list[int], list[int]]:
    """Of each link as many of the lines that it had as it still has."""
    place = np.arange(len(before.link)) - np.searchsorted(before.link, before.link)
    stays = place < wavelengths[before.link]
    return before.link[stays].tolist(), before.line[stays].tolist()


class _Combs:
    """Which link has each line of each CU, as it sends and as it receives; -1 where none."""

    def __init__(self, near: Neighbours, w: int) -> None:
        self.src, self.dst = near.src.tolist(), near.dst.tolist()
        self.sent = [[-1] * w for _ in range(near.n)]
        self.received = [[-1] * w for _ in range(near.n)]
        self.free_sent = [(1 << w) - 1] * near.n  # a bit a line
        self.free_received = [(1 << w) - 1] * near.n

    def put(self, link: int, line: int) -> None:
        i, j = self.src[link], self.dst[link]
        self.sent[i][line] = self.received[j][line] = link
        self.free_sent[i] &= ~(1 << line)
        self.free_received[j] &= ~(1 << line)

    def lift(self, link: int, line: int) -> None:
        i, j = self.src[link], self.dst[link]
        self.sent[i][line] = self.received[j][line] = -1
        self.free_sent[i] |= 1 << line
        self.free_received[j] |= 1 << line

    def add(self, link: int) -> None:
        """A line that is free at both ends; if there is none, one that a chain of two lines, swapped, makes free."""
        free, wanted = self.free_sent[self.src[link]], self.free_received[self.dst[link]]
        line = _lowest(free & wanted or free)
        if not free & wanted:
            self._swap(self.dst[link], line, _lowest(wanted))
        self.put(link, line)

    def _swap(self, receiver: int, a: int, b: int) -> None:
        """Change lines a and b on the chain that starts where `receiver` receives a; it never comes to who has a free."""
        chain, held, line = [], self.received[receiver][a], a
        while held >= 0:
            chain.append((held, line))
            line = a + b - line
            held = self.sent[self.src[held]][b] if line == b else self.received[self.dst[held]][a]
        for held, line in chain:
            self.lift(held, line)
        for held, line in chain:
            self.put(held, a + b - line)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
