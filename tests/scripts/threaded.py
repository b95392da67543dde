"""Programs drawn at random whose ranks have threads of their own: threaded.py FOLDER SEED ..., as one rank.

Lanes run side by side, the first on the thread of the program, and each lane has a group of its own. So a program comes to its
end wherever its threads run, and in whatever order; FOLDER/RANK.json is what every run must find. `SEED:FAULT` draws a program
that cannot come to its end.
"""

import atexit
import io
import json
import os
import queue
import random
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path

import torch.distributed as dist
from threaded_parts import collectives, heavy, keys, states, waits
from threaded_parts.faults import FAULTS
from threaded_parts.lane import Lane
from threaded_parts.starts import WAYS, groups, local, parts

_TALK = (*collectives.STEPS, *collectives.STEPS, *keys.STEPS * 6, *heavy.STEPS)
_LOCAL = (*waits.STEPS, *states.STEPS)


class Program:
    """The part that one rank has in the program of a seed.

    Args:
        seed: As given.
        fault: The name of what one thread does in vain; None: nothing.
        rank: This one.
        n: Ranks in all.
        folder: For files, the same on all ranks.
    """

    def __init__(self, seed, fault, rank, n, folder):
        self.seed, self.fault, self.rank, self.n, self.folder = seed, fault, rank, n, folder
        self.draw = random.Random(seed)
        self.notes = {}
        self.made, self.groups = [], Counter()  # of this rank, and how many each rank has
        self.printed = io.StringIO()
        self.ends = self.draw.random() < 0.4  # whether groups end with their phase
        self.n_phases = self.draw.randint(1, 3)
        self.guilty = random.Random(f"{seed} guilty").randrange(n)

    def run(self):
        """Do all of it; return what was found."""
        sys.stdout, before = self.printed, sys.stdout
        threading.excepthook, hook = self.told, threading.excepthook
        try:
            for i in range(self.n_phases):
                self.phase(i, is_last=i == self.n_phases - 1)
        finally:
            sys.stdout, threading.excepthook = before, hook
        return {**self.notes, "printed": sorted(self.printed.getvalue().splitlines())}

    def told(self, given):
        """Keep what a thread is told to have ended with."""
        self.printed.write(f"{given.exc_type.__name__}: {given.exc_value}\n")
        if not isinstance(given.exc_value, (ValueError, SystemExit)):
            traceback.print_exception(given.exc_value)

    def phase(self, i, is_last):
        """Lanes side by side; all ranks draw the same."""
        lanes = self.lanes(i)
        mine = [lane for lane in lanes if self.rank in lane.ranks]
        bodies = [lambda lane=lane: self.live(lane) for lane in mine]
        bodies, first = (bodies[1:], bodies[0]) if mine and mine[0] is lanes[0] else (bodies, int)
        if self.fault is not None and is_last and self.rank == self.guilty:
            lane = Lane(f"{self.seed} fault", self.rank, (self.rank,), self.folder, self.notes)
            bodies.append(lambda: FAULTS[self.fault](lane))
        way = self.draw.choice(WAYS)(random.Random(f"{self.seed} {i} {self.rank}"), bodies)
        next(way)
        first()
        next(way, None)
        self.alone(i, is_last)
        self.made += [lane.group for lane in mine]
        if self.ends:
            for group in self.made:
                dist.destroy_process_group(group)
            self.made.clear()
            self.groups.clear()

    def lanes(self, i):
        """Return the lanes of a phase, those of other ranks too; some groups are not made yet."""
        if self.n > 1 and self.draw.random() < 0.25:
            made = parts(self.draw, self.rank, self.n)
            self.groups.update(list(range(self.n)) * len(made))
            return [self.lane(f"{i} {j} {ranks}", ranks, group) for j, (ranks, group) in enumerate(made)]
        lists = []
        for _ in range(self.draw.randint(1, 4)):
            ranks = tuple(sorted(self.draw.sample(range(self.n), self.draw.choice([1, 2, 2, self.n, self.n]))))
            if ranks not in lists:  # threads may not make groups of the same ranks at the same time
                lists.append(ranks)
        made = groups(self.draw, self.rank, lists, self.groups, is_local=not self.ends)
        return [self.lane(f"{i} {j}", ranks, group) for j, (ranks, group) in enumerate(zip(lists, made, strict=True))]

    def lane(self, name, ranks, group):
        """Return a lane of that name, the notes of which are kept if it is this rank's."""
        return Lane(f"{self.seed} {name}", self.rank, ranks, self.folder, self.notes if self.rank in ranks else {}, group)

    def live(self, lane):
        """The steps of one lane, the first error of which is kept: others may wait for ever then."""
        try:
            self.steps(lane)
        except Exception:
            (self.folder / f"{self.rank}.error").write_text(f"{lane.name}: {traceback.format_exc()}\n{self.notes}\n")
            if dist.get_backend() == "gloo":
                os._exit(7)
            raise

    def steps(self, lane):
        """Do the steps of one lane."""
        if lane.group is None:
            lane.group = local(lane.ranks)
        for _ in range(lane.draw.randint(1, 5)):
            step = lane.draw.choice(_TALK if lane.draw.random() < 0.7 else _LOCAL)
            lane.note(step.__name__)
            if lane.draw.random() < 0.2 and step in _TALK:  # on a thread of its own, for which this one waits
                failed = []
                lane.thread(kept, step, lane, failed).join()
                for error in failed:
                    raise error
            else:
                step(lane)

    def alone(self, i, is_last):
        """Do what only the thread of the program may do, after all others."""
        lane = self.lane(f"{i} alone", tuple(range(self.n)), None)
        if self.draw.random() < 0.3:
            states.numbers(lane)
        if self.draw.random() < 0.1:
            heavy.loaded(lane)
        if self.draw.random() < 0.2:
            threading.Thread(target=threading.Event().wait, daemon=True).start()  # which ends with the rank
        if self.draw.random() < 0.5 and not (self.fault is not None and is_last and self.rank == self.guilty):
            dist.barrier()


def kept(step, lane, failed):
    """Do a step, and keep its error."""
    try:
        step(lane)
    except Exception as error:
        failed.append(error)


def writer(file):
    """Return what a daemon writes that goes on until Python ends, as writers of logs do."""
    left = queue.Queue()

    def write():
        while True:
            text = left.get()
            with file.open("a") as ends:
                ends.write(text)
            left.task_done()

    threading.Thread(target=write, daemon=True).start()
    return left


def end(left, name):
    """Let the writer write a name."""
    left.put(f"{name}\n")
    left.join()


def main(folder, *seeds):
    """Do the programs one after the other."""
    rank, n, found = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), n, is_master=rank == 0)
    left = writer(folder / f"{rank}.ends")
    for name in ("first", "second"):
        atexit.register(end, left, name)
    for given in seeds:
        (folder / f"{rank}.at").write_text(given)
        dist.init_process_group("gloo", store=dist.PrefixStore(given, store), rank=rank, world_size=n)
        seed, _, fault = given.partition(":")
        home = folder / given
        home.mkdir(exist_ok=True)
        found[given] = Program(seed, fault or None, rank, n, home).run()
        dist.barrier()
        dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    store.set(f"end {rank}", "1")  # the first serves it until all have done
    store.wait([f"end {each}" for each in range(n)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
