"""A lane is what one thread of a rank does; the same lane runs on every rank of its group."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32)


@dataclass
class Lane:
    """The things that the steps of one thread find.

    Args:
        name: The same on all ranks; what is drawn in the lane follows from it.
        rank: Whose thread it is.
        ranks: The members of its group, in order; this rank alone where the lane asks for no communication.
        folder: For files, the same on all ranks.
        notes: Results of the rank, by lane.
        group: None: not made yet.
    """

    name: str
    rank: int
    ranks: tuple[int, ...]
    folder: Path
    notes: dict[str, list[object]]
    group: object = None
    draw: random.Random = field(init=False)
    count: int = 0

    def __post_init__(self):
        self.draw = random.Random(self.name)
        self.notes[self.name] = []

    @property
    def n(self):
        """The size of the group."""
        return len(self.ranks)

    @property
    def me(self):
        """The rank within the group."""
        return self.ranks.index(self.rank)

    def note(self, *values):
        """Keep results that every run must have."""
        self.notes[self.name].extend(plain(value) for value in values)

    def new(self, what):
        """Return a name that nothing else has, the same on all ranks of the lane."""
        self.count += 1
        return f"{self.name}.{what}{self.count}".replace(" ", "_")

    def inner(self, *, is_alone=True):
        """Return a lane for a thread that this one starts."""
        ranks = (self.rank,) if is_alone else self.ranks
        return Lane(self.new("inner"), self.rank, ranks, self.folder, self.notes, None if is_alone else self.group)

    def data(self, count=None, dtype=None):
        """Return numbers that are exact in any order of a sum, other ones on each rank."""
        count = self.draw.choice([1, 3, 8, 100]) if count is None else count
        dtype = self.draw.choice(DTYPES) if dtype is None else dtype
        return ((torch.arange(count) + self.draw.randrange(9) + 3 * self.me) % 7 - 2).to(dtype)

    def nap(self):
        """Wait some milliseconds, on each rank others: nothing that is noted may depend on it."""
        time.sleep(random.Random(f"{self.name} {self.rank} {self.count}").choice([0, 0.0003, 0.002, 0.005]))

    def thread(self, body, *given, daemon=False):
        """Return a thread that was started."""
        thread = threading.Thread(target=body, args=given, daemon=daemon)
        thread.start()
        return thread


def plain(value):
    """Return a value as JSON has it, with its dtype."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
