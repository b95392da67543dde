"""MSCCL programs: some written by hand as msccl-tools would, and a plain machine that runs their text."""

import random
import re
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict, deque

import numpy as np

COLLS = {"allreduce": "all_reduce", "reduce_scatter": "reduce_scatter", "allgather": "all_gather", "alltoall": "all_to_all"}


class Machine:
    """Threadblocks take steps in a random order; a chunk is the multiset of (rank, input chunk) summed in it."""

    def __init__(self, text: str, seed: int) -> None:
        self.root, self.random = ET.fromstring(text), random.Random(seed)
        self.n, self.total = (int(self.root.get(a)) for a in ("ngpus", "nchunksperloop"))
        self.op = COLLS[self.root.get("coll")]
        self.parts = self.total if self.op == "all_reduce" else self.total // self.n
        self.chunks: dict[tuple[int, str, int], Counter] = {}
        self.wires: dict[tuple, deque] = defaultdict(deque)
        self.done: Counter[tuple[int, int]] = Counter()

    def home(self, rank: int, buffer: str, chunk: int) -> tuple[int, str, int]:
        if self.root.get("inplace") == "0" or buffer == "s":
            return rank, buffer, chunk
        shift = rank * self.parts
        moved = {("all_gather", "i"): shift, ("reduce_scatter", "o"): shift}.get((self.op, buffer), 0)
        return rank, "x", chunk + moved

    def run(self) -> bool:
        inputs = self.parts if self.op == "all_gather" else self.total
        for rank in range(self.n):
            self.chunks |= {self.home(rank, "i", c): Counter({(rank, c): 1}) for c in range(inputs)}
        blocks = [(int(g.get("id")), tb) for g in self.root for tb in g]
        blocks = [(rank, tb) for rank, tb in blocks if len(tb)]
        while blocks:
            rank, tb = self.any_free(blocks)
            self.step(rank, tb, tb[self.done[rank, int(tb.get("id"))]])
            self.done[rank, int(tb.get("id"))] += 1
            if self.done[rank, int(tb.get("id"))] == len(tb):
                blocks.remove((rank, tb))
        outputs = self.parts if self.op == "reduce_scatter" else self.total
        return all(self.chunks.get(self.home(r, "o", c)) == self.wanted(r, c) for r in range(self.n) for c in range(outputs))

    def any_free(self, blocks: list[tuple[int, ET.Element]]) -> tuple[int, ET.Element]:
        """Draw one of those that may step; to draw until one may is sooner than to look at each."""
        for left in range(len(blocks), 0, -1):
            at = self.random.randrange(left)
            if self.may_step(*blocks[at]):
                return blocks[at]
            blocks[at], blocks[left - 1] = blocks[left - 1], blocks[at]
        raise AssertionError("deadlock")

    def wanted(self, rank: int, chunk: int) -> Counter:
        block, part = divmod(chunk, self.parts)
        everybody = range(self.n)
        return {
            "all_reduce": Counter({(r, chunk): 1 for r in everybody}),
            "reduce_scatter": Counter({(r, rank * self.parts + chunk): 1 for r in everybody}),
            "all_gather": Counter({(block, part): 1}),
            "all_to_all": Counter({(block, rank * self.parts + part): 1}),
        }[self.op]

    def may_step(self, rank: int, tb: ET.Element) -> bool:
        step = tb[self.done[rank, int(tb.get("id"))]]
        awaited = int(step.get("depid")) < 0 or self.done[rank, int(step.get("depid"))] > int(step.get("deps"))
        receives = step.get("type").startswith("r") and step.get("type") != "re"
        return awaited and (not receives or bool(self.wires[int(tb.get("recv")), rank, tb.get("chan")]))

    def step(self, rank: int, tb: ET.Element, step: ET.Element) -> None:
        kind = step.get("type")
        if kind == "nop":
            return
        at = range(int(step.get("cnt")))
        source, target = (
            [self.home(rank, step.get(f"{s}buf"), int(step.get(f"{s}off")) + i) for i in at] for s in ("src", "dst")
        )
        if kind.startswith("r") and kind != "re":
            value = self.wires[int(tb.get("recv")), rank, tb.get("chan")].popleft()
            if "rr" in kind:
                value = [a + self.chunks[s] for a, s in zip(value, source, strict=True)]
        else:
            value = [self.chunks[s] for s in source]
            if kind == "re":
                value = [a + self.chunks[t] for a, t in zip(value, target, strict=True)]
        if kind not in ("s", "rrs"):
            self.chunks.update(zip(target, value, strict=True))
        if kind.endswith("s"):
            self.wires[rank, int(tb.get("send")), tb.get("chan")].append(value)


def program(coll: str, n: int, chunks: int, gpus: list[list], scratch: int = 0, in_place: int = 1) -> str:
    """Threadblocks are (send, recv, steps[, channel]), a step is `kind source [target] [xcount] [@threadblock.step]`."""
    root = ET.Element("algo", name="t", coll=coll, ngpus=str(n), nchunksperloop=str(chunks), inplace=str(in_place))
    for rank, blocks in enumerate(gpus):
        gpu = ET.SubElement(root, "gpu", id=str(rank), i_chunks="0", o_chunks="0", s_chunks=str(scratch))
        for number, (send, recv, steps, *channel) in enumerate(blocks):
            tb = ET.SubElement(gpu, "tb", id=str(number), send=str(send), recv=str(recv), chan=str(*channel or [0]))
            tb.extend(one_step(index, text) for index, text in enumerate(steps))
    return ET.tostring(root, encoding="unicode")


def one_step(index: int, text: str) -> ET.Element:
    kind, spots, count, block, step = re.fullmatch(r"(\w+)((?: [ios]\d+)*)(?: x(\d+))?(?: @(\d+)\.(\d+))?", text).groups()
    source, target = (spots.split() * 2)[:2] or ("i0", "i0")
    numbers = {"cnt": count or "1", "depid": block or "-1", "deps": step or "-1", "hasdep": "1"}
    named = {"srcbuf": source[0], "srcoff": source[1:], "dstbuf": target[0], "dstoff": target[1:]}
    return ET.Element("step", s=str(index), type=kind, **named, **numbers)


def allpairs(n: int) -> str:
    gpus = []
    for r in range(n):
        peers = [p for p in range(n) if p != r]
        adds = [f"re s{p} i{r} @{b}.1" for b, p in enumerate(peers)]
        blocks = [(p, p, [f"s i{p}", f"r s{p}", f"s i{r} @{n - 1}.{n - 2}", f"r i{p}"]) for p in peers]
        gpus.append([*blocks, (-1, -1, adds)])
    return program("allreduce", n, n, gpus, scratch=n)


def ring(n: int) -> str:
    gpus = []
    for r in range(n):
        adding = [f"s i{r}", *(f"rrs i{(r - j) % n}" for j in range(1, n - 1)), f"rrcs i{(r + 1) % n}"]
        passing = [*(f"rcs i{(r - j) % n}" for j in range(n - 2)), f"r i{(r + 2) % n}"]
        gpus.append([((r + 1) % n, (r - 1) % n, adding + passing)])
    return program("allreduce", n, n, gpus)


def gather_ring(n: int) -> str:
    gpus = []
    for r in range(n):
        passing = [f"rcs o{(r - j) % n}" for j in range(1, n - 1)]
        steps = ["s i0", *passing, f"r o{(r + 1) % n}"]
        gpus.append([((r + 1) % n, (r - 1) % n, steps), (-1, -1, [f"cpy i0 o{r}"])])
    return program("allgather", n, n, gpus, in_place=0)


def two_step(m: int, g: int) -> str:
    """Return an alltoall in two steps: what a board has for another is gathered by destination, then crosses in one piece."""
    gpus = []
    for a, i in np.ndindex(m, g):
        boards = [b for b in range(m) if b != a]
        own = [f"cpy i{b * g + i} s{b * g + i}" for b in boards]
        blocks = [(-1, -1, [*own, f"cpy i{a * g + i} o{a * g + i}"])]
        for j in (j for j in range(g) if j != i):
            there = [text for b in boards for text in (f"s i{b * g + j}", f"r s{b * g + j}")]
            blocks.append((a * g + j, a * g + j, [*there, f"s i{a * g + j}", f"r o{a * g + j}"]))
        for k, b in enumerate(boards):
            waits = [f"nop @{local}.{2 * k + 1}" for local in range(1, g)]
            blocks.append((b * g + i, b * g + i, [*waits, f"s s{b * g} x{g} @0.{k}", f"r o{b * g} x{g}"]))
        gpus.append(blocks)
    return program("alltoall", m * g, m * g, gpus, scratch=m * g, in_place=0)


def hierarchical() -> str:
    """Two boards of two; the first of each collects all for the other board, exchanges it and hands it out."""
    gpus = []
    for a, other in ((0, 1), (1, 0)):
        first, second, far, there = 2 * a, 2 * a + 1, 2 * other, 2 * other
        own = [f"cpy i{far} s0 x2", f"cpy i{first} o{first}", f"cpy s4 o{far} @2.2", f"cpy s6 o{far + 1}"]
        near = ["r s2 x2", f"s i{second}", f"r o{second}", f"s s5 o{far} @2.2", f"s s7 o{far + 1}"]
        across = ["nop @0.0", "s s0 x4 @1.0", "r s4 x4"]
        gpus.append([(-1, -1, own), (second, second, near), (there, there, across)])
        handed = [f"s i{far} x2", f"r o{first}", f"s i{first}", f"r o{far}", f"r o{far + 1}"]
        gpus.append([(-1, -1, [f"cpy i{second} o{second}"]), (first, first, handed)])
    return program("alltoall", 4, 4, gpus, scratch=8, in_place=0)


WRITTEN = {
    "allpairs": allpairs(4),
    "ring": ring(5),
    "gather-ring": gather_ring(4),
    "two-step": two_step(3, 2),
    "hierarchical": hierarchical(),
}
