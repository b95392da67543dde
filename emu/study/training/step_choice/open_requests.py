"""The requests of a step whose algorithm may be chosen, grouped by coordinate.

Q is the number of different requests of a step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from emu.collective.algorithm import AlgorithmOnDims, Choice, Chooser
from emu.study.choice.equal_groups import canonical_group
from emu.study.training.composed.place_requests import DistinctRequest, PlaceRequests
from emu.study.training.step_choice.options import Coordinate, ServedFabric, first_request, is_open
from emu.units import seconds


@dataclass(frozen=True, eq=False)
class OpenRequests:
    """The requests of one step for which the user names no algorithm.

    Args:
        asked: All requests of the step.
        fabric: The fabric on which the step runs, where each request is served by what is chosen for it alone.
    """

    asked: PlaceRequests
    fabric: ServedFabric
    _known_groups: dict[tuple[int, ...], list[tuple[int, ...]]] = field(default_factory=dict)  # by the kind of request

    @cached_property
    def by_coordinate(self) -> Mapping[Coordinate, list[DistinctRequest]]:
        """Requests by their coordinate."""
        found: dict[Coordinate, list[DistinctRequest]] = {}
        for asked in self.asked.requests:
            if is_open(asked, self.fabric.choice):
                found.setdefault(Coordinate.of(first_request(asked)), []).append(asked)
        return found

    def heaviest(self, coordinate: Coordinate) -> DistinctRequest:
        """Return the request of a coordinate that moves most bytes in the whole step."""
        return max(self.by_coordinate[coordinate], key=lambda q: q.size_bytes * self._times[id(q)])

    def weight_s(self, coordinate: Coordinate) -> float:
        """Return the time of a coordinate's requests at its busiest place, one after another, in seconds.

        The time of each byte is taken to be the time of a byte of the heaviest request.
        """
        heaviest, of_place = self.heaviest(coordinate), dict[int, int]()
        for q in self.by_coordinate[coordinate]:
            of_place[q.kind[1]] = of_place.get(q.kind[1], 0) + max(1, q.size_bytes) * self._times[id(q)]
        return seconds(self.fabric.isolated(heaviest).ticks) * max(of_place.values()) / max(1, heaviest.size_bytes)

    def served(self, coordinate: Coordinate, choice: Choice) -> tuple[AlgorithmOnDims, ...]:
        """Return the algorithms by which a choice serves the requests of a coordinate, group by group."""
        return tuple(served for q in self.by_coordinate[coordinate] for served in self.algorithms_of(q, choice))

    def algorithms_of(self, asked: DistinctRequest, choice: Choice) -> list[AlgorithmOnDims]:
        """Return the algorithm of a request in each group that chooses; groups equal by symmetry count once."""
        request = first_request(asked)
        return [choice.served(request._replace(ranks=ranks)) for ranks in self._groups(asked)]

    def shares(self, coordinates: Iterable[Coordinate], others: Iterable[Chooser]) -> dict[int, float]:
        """Return the least share of its time alone that a request takes, by the request's number.

        Args:
            coordinates: The coordinates whose requests may get another algorithm.
            others: Choosers that may serve these requests, besides each algorithm.
        """
        number, found = {id(q): i for i, q in enumerate(self.asked.requests)}, dict[int, float]()
        others = list(others)
        for coordinate in coordinates:
            requests = self.by_coordinate[coordinate]
            heaviest = {q.kind[1]: q for q in sorted(requests, key=lambda q: q.size_bytes)}
            by_place = {place: self._share(q, others) for place, q in heaviest.items()}
            found |= {number[id(q)]: by_place[q.kind[1]] for q in requests}
        return found

    def _share(self, asked: DistinctRequest, others: Sequence[Chooser]) -> float:
        """Return the least time of a request by any chooser, as a share of its time by the present choice."""
        return self.fabric.least_ticks(asked, others) / max(1, self.fabric.isolated(asked).ticks)

    @cached_property
    def _times(self) -> Mapping[int, int]:
        """The number of times that each of the Q requests is asked, by its identity."""
        counts = np.bincount(self.asked.different, minlength=len(self.asked.requests)).tolist()
        return {id(request): n for request, n in zip(self.asked.requests, counts, strict=True)}

    def _groups(self, asked: DistinctRequest) -> list[tuple[int, ...]]:
        """Return the ranks of the first of equal groups that choose; requests of one kind have equal groups."""
        if asked.kind not in self._known_groups:
            ranks = [tuple(group) for group in asked.choosing.tolist()]
            first: dict[tuple[int, ...], tuple[int, ...]] = {}
            for group in ranks:
                npus = tuple(self.fabric.npus[list(group)].tolist())
                first.setdefault(canonical_group(self.fabric.topology, npus), group)
            self._known_groups[asked.kind] = list(first.values())
        return self._known_groups[asked.kind]
