"""The wavelengths of each link: lines of its sender's comb, none of them twice at a sender or at a receiver.

Flex-SiPAC 3.C routes each WSS by colouring a graph of signals, with DSatur. Signals clash where they share a sender or a
receiver, so the colours are those of the edges of a bipartite graph, and as many as its largest degree are always enough (König
1916), not only for one WSS: a comb has each line once for all its CU's ports.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from topologies.sipac.levels import Neighbours


class Lines(NamedTuple):
    """The comb lines of links: S signals, in the order of links."""

    link: I64  # [S] link of each signal
    line: I64  # [S] 0..w-1


def comb_lines(near: Neighbours, wavelengths: I64, w: int, before: Lines | None = None) -> Lines:
    """Return the comb lines of each link, so that no compute unit (CU) sends or receives two signals on one line.

    Args:
        near: The links.
        wavelengths: [E] how many lines each link gets.
        w: Lines of a comb.
        before: The earlier lines of the same links. They stay where they can; chains of lines may change places in pairs to
            make room for new signals.

    Raises:
        InputError: A CU sends or receives more than w.
    """
    most = int(np.concatenate(near.sums(wavelengths)).max(initial=0))
    if most > w:
        raise must_be("comb lines", "wavelengths in and out of a CU", f"at most {w}", most)
    combs = _Combs(near, w)
    left = wavelengths.copy()
    for link, line in zip(*_keep_lines(before, wavelengths), strict=True) if before else ():
        combs.put(link, line)
        left[link] -= 1
    for link in np.repeat(np.arange(len(left)), left).tolist():
        combs.add(link)
    held = np.array(combs.sent)
    cu, at = np.nonzero(held >= 0)
    order = np.lexsort((at, held[cu, at]))
    return Lines(column(held[cu, at][order], np.int64), column(at[order], np.int64))


def _keep_lines(before: Lines, wavelengths: I64) -> tuple[list[int], list[int]]:
    """Return, for each link, as many of its earlier lines as it still has."""
    place = np.arange(len(before.link)) - np.searchsorted(before.link, before.link)
    stays = place < wavelengths[before.link]
    return before.link[stays].tolist(), before.line[stays].tolist()


class _Combs:
    """The link that has each line of each CU, as sender and as receiver; -1 where none has."""

    def __init__(self, near: Neighbours, w: int) -> None:
        self.src, self.dst = near.src.tolist(), near.dst.tolist()
        self.sent = [[-1] * w for _ in range(near.n)]
        self.received = [[-1] * w for _ in range(near.n)]
        self.free_sent = [(1 << w) - 1] * near.n  # a bit a line
        self.free_received = [(1 << w) - 1] * near.n

    def put(self, link: int, line: int) -> None:
        """Give a comb line to a link, at its sender and at its receiver."""
        i, j = self.src[link], self.dst[link]
        self.sent[i][line] = self.received[j][line] = link
        self.free_sent[i] &= ~(1 << line)
        self.free_received[j] &= ~(1 << line)

    def lift(self, link: int, line: int) -> None:
        """Take a comb line from a link, at its sender and at its receiver."""
        i, j = self.src[link], self.dst[link]
        self.sent[i][line] = self.received[j][line] = -1
        self.free_sent[i] |= 1 << line
        self.free_received[j] |= 1 << line

    def add(self, link: int) -> None:
        """Give a link a line that is free at both ends, or one that becomes free when two lines are swapped along a chain."""
        free, wanted = self.free_sent[self.src[link]], self.free_received[self.dst[link]]
        line = _lowest(free & wanted or free)
        if not free & wanted:
            self._swap(self.dst[link], line, _lowest(wanted))
        self.put(link, line)

    def _swap(self, receiver: int, a: int, b: int) -> None:
        """Swap lines a and b on the chain that starts where `receiver` receives a; the chain never reaches a CU with a free."""
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
    """Return the place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
