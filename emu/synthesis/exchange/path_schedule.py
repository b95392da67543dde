"""Schedules of an all_to_all from paths: the parts of all blocks on their ways, in lanes or in streams.

Both orders are those of trees (`emu.synthesis.ordering`): a path is a tree without branches. On a grid the sends of rank 0 are
stored. What a block of rank 0 is sent at rank r is, moved back by r, what rank 0 sends of a block of another rank. Letters: M
messages, P paths.
"""

import numpy as np

from emu.arrays import I64, ramps
from emu.collective.schedule import Schedule, Sends, Translations
from emu.equivalence import occurrence_numbers
from emu.synthesis.exchange.exchange_network import ExchangeNetwork
from emu.synthesis.exchange.path_program import BlockPaths
from emu.synthesis.hops import HopNetwork
from emu.synthesis.ordering import Lines, TreeMessages, rounds_of_lanes, starts
from emu.synthesis.splitting import Tick


class ExchangeParts:
    """The parts of all blocks on their paths, as messages.

    Args:
        net: The network.
        hops: The hops of the group.
        paths: Paths of its blocks.
        count: [P] the parts on each path.
    """

    def __init__(self, net: ExchangeNetwork, hops: HopNetwork, paths: BlockPaths, count: I64) -> None:
        self.net, self.hops = net, hops
        path = np.repeat(np.arange(len(count)), count)
        self.parts = int(count.sum()) // (int(paths.block[-1]) + 1)
        self.part = np.arange(len(path)) % self.parts
        self.block = paths.block[path]
        arc = paths.arc[path]
        self.of, self.level = np.nonzero(arc >= 0)
        self.arc = arc[self.of, self.level]

    @property
    def depth(self) -> int:
        """The largest number of hops of a part."""
        return int(self.level.max(initial=0)) + 1

    @property
    def n_rows(self) -> int:
        """The number of rows of a schedule in which no part is cut."""
        return len(self.arc)

    def messages(self, pieces: int) -> TreeMessages:
        """Return the messages of all parts, each cut into pieces; trees are parts, hops those of the network."""
        hop = self.net.hop[self.arc]
        before = np.where(self.level > 0, np.arange(len(hop)) - 1, -1)
        taken = np.maximum.reduceat(self.net.second, self.net.start[:-1])[hop]
        return TreeMessages.in_pieces(self.of, hop, before, self.level, taken, pieces)

    def lanes(self, part_bytes: float, pieces: int, tick: Tick) -> Schedule:
        """Return the schedule in which every link of a rank carries one message after another.

        Args:
            part_bytes: Bytes of a part.
            pieces: Pieces of a part, which follow one another.
            tick: It is called now and then.
        """
        net, messages = self.net, self.messages(pieces)
        at = [slice(*ends) for ends in zip(net.start[:-1].tolist(), net.start[1:].tolist(), strict=True)]
        number = net.number
        apart = (self.hops.dst - self.hops.src)[number] % net.n_ranks
        seconds = net.second * (part_bytes / pieces)
        links, taken = ([values[each].tolist() for each in at] for values in (net.link, seconds))
        order = starts(messages, Lines(links, taken, net.n_links, self.hops.head_s[number], apart), tick)
        level = rounds_of_lanes(order, messages, self.hops.queue[number])
        return self._schedule(messages, level, self.hops.channel[number[messages.hop]], pieces)

    def streams(self, pieces: int) -> Schedule:
        """Return the schedule in which each hop of each part is a queue of its own.

        Args:
            pieces: Pieces of a part, which follow one another.
        """
        messages, hop = self.messages(pieces), self.net.number[self.net.hop[self.arc]]
        own = occurrence_numbers(self.hops.src[hop])
        channel = np.tile(self.hops.apart(hop, own), pieces)
        return self._schedule(messages, messages.piece + messages.level, channel, pieces)

    def _schedule(self, messages: TreeMessages, level: I64, channel: I64, pieces: int) -> Schedule:
        """Return the schedule of messages on given rounds and channels."""
        net, n = self.net, self.net.n_ranks
        source, to = (ends[self.block] for ends in net.pairs)
        unit = ((source * n + to) * self.parts + self.part) * pieces
        slot = unit[messages.tree] + messages.piece
        arc = np.tile(self.arc, pieces)
        src, dst = net.src[arc], net.dst[arc]
        if net.dims:
            moves = Translations(net.dims, n * n * self.parts * pieces, 2)
            back = moves.opposite(src)
            src, dst, slot = np.zeros(len(arc), np.int64), moves.rank(dst, back), moves.slot(slot, back)
        order = np.argsort(level, kind="stable")
        ends = np.concatenate(([0], np.cumsum(np.bincount(level))))
        rounds = (
            Sends(src[now], dst[now], slot[now], channel=channel[now])
            for now in (order[ramps(ends[i : i + 1], np.diff(ends)[i : i + 1])] for i in range(len(ends) - 1))
        )
        total = n * n * self.parts * pieces
        return Schedule.build(n, total, rounds, translate=net.dims, slot_digits=2 if net.dims else 1)
